//! The broker process of one pool.
//!
//! Prints `ready` and a newline on stdout (or on `--ready-fd`) once it listens; logs to stderr; ends cleanly on SIGTERM or SIGINT. On
//! SIGHUP it reads the pool config again and takes over what the same donors give now.

#![allow(unsafe_code)] // Signals as a descriptor, and the descriptor limit, have no safe interface here.

use std::fs::File;
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use rustix::fs::FlockOperation;
use tarn_broker::admission::Admission;
use tarn_broker::donors::Donors;
use tarn_broker::server::{Server, listen};
use tarn_broker::start::{given, named, open_desk};
use tarn_protocol::ids::GpuUuid;
use tarn_protocol::pool_config::PoolConfig;

#[derive(Debug, Parser)]
#[command(name = "tarn-broker", version, about = "Owns a pool's donor memory and leases chunks of it")]
struct Options {
    /// The pool config.
    #[arg(long)]
    config: PathBuf,
    /// Where to listen.
    #[arg(long)]
    socket: PathBuf,
    /// The persisted ledger: carried on when it exists.
    #[arg(long)]
    state: PathBuf,
    /// The NVML library that shows what is in use on the donors.
    #[arg(long, default_value = "libnvidia-ml.so.1")]
    nvml: PathBuf,
    /// User id of the instance's processes; repeatable. Default: the broker's own.
    #[arg(long)]
    tenant_uid: Vec<u32>,
    /// The instance's cgroup, as /proc/<pid>/cgroup names it.
    #[arg(long)]
    tenant_cgroup: Option<PathBuf>,
    /// The instance's pid namespace, as /proc/<pid>/ns/pid names it.
    #[arg(long)]
    tenant_pid_namespace: Option<String>,
    /// Write the ready line to this descriptor instead of stdout.
    #[arg(long)]
    ready_fd: Option<RawFd>,
}

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        // Whoever read stderr may be gone; that is no reason to fail.
        .log_internal_errors(false)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()),
        )
        .init();
    let options = Options::parse();
    let stop = signals(&[libc::SIGTERM, libc::SIGINT]).context("cannot watch for signals")?;
    let reload = signals(&[libc::SIGHUP]).context("cannot watch for signals")?;
    raise_descriptor_limit();

    let _only = only_broker(&options.state)?;
    let config = PoolConfig::read(&options.config)?;
    if config.donors_on_primary {
        tracing::warn!("a hardware trial: all donors are the primary itself");
    }
    let donors = Donors::open(&config, options.nvml.as_os_str())?;
    for (at, donor) in config.donors.iter().enumerate() {
        if !donors.present(tarn_broker::ledger::Donor(at)) {
            tracing::warn!(uuid = %donor.uuid, "the driver has no such card; it gives nothing");
        }
    }
    let desk = open_desk(&config, &options.state, donors, Donors::present)?;
    let own_uid = rustix::process::getuid().as_raw();
    let admission = Admission {
        tenant_uids: if options.tenant_uid.is_empty() { vec![own_uid] } else { options.tenant_uid },
        tenant_cgroup: options.tenant_cgroup,
        tenant_pid_namespace: options.tenant_pid_namespace,
        observer_uid: own_uid,
    };
    let mut server = Server::new(desk, admission, listen(&options.socket)?, &stop)?;
    let signal = reload.try_clone().context("cannot watch for signals")?;
    let (path, places) = (options.config.clone(), named(&config));
    server.resize_on(&reload, Box::new(move || quotas(&signal, &path, &places)))?;
    announce(options.ready_fd).context("nobody reads the ready line")?;
    tracing::info!(socket = %options.socket.display(), donors = config.donors.len(), "serving");
    server.run(monotonic)?;
    tracing::info!(clients = server.clients(), "stopped");
    Ok(())
}

/// Two brokers over one ledger would lend every byte twice. The lock goes with the process, however it ends.
fn only_broker(state: &Path) -> anyhow::Result<File> {
    let path = state.with_extension("lock");
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
        .with_context(|| format!("another broker serves {}", state.display()))?;
    Ok(file)
}

fn announce(ready_fd: Option<RawFd>) -> std::io::Result<()> {
    match ready_fd {
        None => {
            let mut out = std::io::stdout();
            out.write_all(b"ready\n")?;
            out.flush()
        }
        Some(fd) => {
            // SAFETY: the starter passed this descriptor for us to own; it is used here only and closed after the line.
            let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
            file.write_all(b"ready\n")
        }
    }
}

fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec.cast_unsigned(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// What the config's donors give now. A config that names other donors, or cannot be read, changes nothing.
fn quotas(signal: &OwnedFd, path: &Path, places: &[GpuUuid]) -> Option<Vec<u64>> {
    let mut taken = [0u8; 128];
    // Several signals are one word to look again.
    while rustix::io::read(signal, &mut taken).is_ok_and(|bytes| bytes > 0) {}
    match PoolConfig::read(path) {
        Ok(config) if named(&config) == places => Some(given(&config)),
        Ok(_) => {
            tracing::warn!("the pool config names other donors, or another tier, now: nothing is changed");
            None
        }
        Err(error) => {
            tracing::warn!(%error, "the pool config cannot be read again: nothing is changed");
            None
        }
    }
}

/// Signals as a descriptor that becomes readable.
fn signals(numbers: &[i32]) -> std::io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before use, and every pointer outlives its call; no other thread exists yet.
    let fd = unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        for &number in numbers {
            libc::sigaddset(&raw mut set, number);
        }
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: signalfd just opened it for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Thousands of clients need as many descriptors; the soft limit is often 1024.
fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised) {
        tracing::warn!(%error, "the descriptor limit stays as it is");
    }
}
