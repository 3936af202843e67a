//! The host agent's executable: reads the configuration and hands over to the library.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use tarn_agent::cli::{Cli, Command, ProbeArguments, ProbeRole, RunArguments};
use tarn_agent::clock::HostClock;
use tarn_agent::donor_guard::check;
use tarn_agent::donor_guard::driver::DriverGuard;
use tarn_agent::join::Secret;
use tarn_agent::probe::words::Verdict;
use tarn_agent::probe::{command, exporter, importer};
use tarn_agent::rejoin;
use tarn_agent::run::{self, Options};
use tarn_agent::runtime::{enter, inner, outer};
use tarn_agent::scrub::process;
use tarn_agent::state_dir::StateDir;
use tarn_protocol::hardware::ProbeOutcome;
use tarn_protocol::units::Bytes;

fn main() -> ExitCode {
    match run_command() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tarn-agent: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_command() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Run(arguments) => serve(*arguments),
        Command::Exec { state_dir, instance_id, command } => {
            let state = StateDir::existing(&state_dir)?;
            std::process::exit(enter::exec(&state, &instance_id, &command)?);
        }
        Command::Rejoin { state_dir } => {
            let state = StateDir::existing(&state_dir)?;
            let done = rejoin::set_aside(&state, HostClock::open(None)?.now())?;
            let mut out = std::io::stdout();
            writeln!(out, "set aside in {}: {}", done.aside.display(), done.files.join(", "))?;
            for instance in done.instances {
                writeln!(out, "still here, and unknown to the host that this one becomes: {instance}")?;
            }
            writeln!(out, "now: tarn-agent run … --join-token-file FILE, with a new join token")?;
            Ok(())
        }
        Command::Probe(arguments) => probe(arguments),
        Command::GuardCheck { card, seconds, driver_dir } => {
            let own_executable = std::env::current_exe().context("where is this executable?")?;
            let patience = Duration::from_secs(seconds);
            let clock = HostClock::open(None)?;
            let (card, driver_dir) = (card.as_ref(), driver_dir.as_deref());
            let report = check::run(card, driver_dir, &own_executable, patience, &clock)?;
            writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&report)?)?;
            anyhow::ensure!(report.passed, "{}", report.remarks.join("; "));
            Ok(())
        }
        Command::ScrubCard { card } => {
            let scrubbed = process::run(&card)?;
            writeln!(std::io::stdout(), "{}", serde_json::to_string(&scrubbed)?)?;
            anyhow::ensure!(scrubbed.unclean_bytes == 0, "the card is not clean");
            Ok(())
        }
        Command::HoldContext { card } => Ok(check::hold(&card)?),
        Command::ProbeLink { role, card, bytes } => {
            let socket = std::io::stdin();
            let verdict = match role {
                ProbeRole::Exporter => exporter::run(&socket, &card, bytes),
                ProbeRole::Importer => importer::run(&socket, &card, bytes),
            };
            say(&verdict)
        }
        Command::RuntimeInit { run_dir, inner: false, .. } => {
            std::process::exit(outer::run(&run_dir, &HostClock::open(None)?));
        }
        Command::RuntimeInit { run_dir, inner: true, own_pids } => {
            std::process::exit(inner::run(&run_dir, own_pids, &HostClock::open(None)?));
        }
    }
}

fn say(verdict: &Verdict) -> anyhow::Result<()> {
    let mut out = std::io::stdout();
    writeln!(out, "{}", serde_json::to_string(verdict)?)?;
    Ok(out.flush()?)
}

/// Prints one JSON document; the exit status says whether every pair passed.
fn probe(arguments: ProbeArguments) -> anyhow::Result<()> {
    let request = command::Request {
        pair: arguments.from.zip(arguments.to),
        bytes: Bytes::new(arguments.bytes.next_multiple_of(2 * Bytes::MIB)),
        deadline: Duration::from_secs(arguments.deadline_seconds),
        driver_dir: arguments.driver_dir,
        own_executable: std::env::current_exe().context("where is this executable?")?,
    };
    let clock = HostClock::open(None)?;
    let certificates = command::run(&request, &clock, |probe| {
        eprintln!("{} -> {}: grade {}, {:?}", probe.from, probe.to, probe.grade.as_str(), probe.outcome);
    })?;
    #[allow(clippy::disallowed_methods)] // a certificate on paper carries a date, and this is main
    let made_at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_secs();
    let document = serde_json::json!({
        "made_at_unix_seconds": made_at,
        "boot_id": clock.boot_id(),
        "agent_version": env!("CARGO_PKG_VERSION"),
        "certificates": certificates,
    });
    writeln!(std::io::stdout(), "{}", serde_json::to_string_pretty(&document)?)?;
    let failed = certificates.iter().filter(|probe| matches!(probe.outcome, ProbeOutcome::Failed { .. }));
    match failed.count() {
        0 => Ok(()),
        failed => anyhow::bail!("{failed} of {} pairs failed", certificates.len()),
    }
}

fn serve(arguments: RunArguments) -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()),
        )
        .init();
    let options = options(arguments)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = runtime.block_on(run::run(options));
    // Threads that hang in a driver must not keep the agent from ending.
    runtime.shutdown_background();
    Ok(result?)
}

fn options(arguments: RunArguments) -> anyhow::Result<Options> {
    let own_executable = std::env::current_exe().context("where is this executable?")?;
    let beside = || own_executable.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
    let token = match (&arguments.join_token_file, arguments.join_token) {
        (Some(path), _) => match std::fs::read_to_string(path) {
            Ok(text) => Some(text.trim().to_owned()),
            // Needed once; whoever removes it afterwards does right.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        },
        (None, token) => token,
    };
    let host_name = || {
        let text = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        text.trim().to_owned()
    };
    Ok(Options {
        server: arguments.server,
        state_dir: arguments.state_dir,
        join_token: token.filter(|text| !text.is_empty()).map(Secret::new),
        name: arguments.name.unwrap_or_else(host_name),
        driver_dir: arguments.driver_dir,
        device_dir: arguments.device_dir,
        artefacts: arguments.artefacts.unwrap_or_else(beside),
        own_executable,
        report_seconds: arguments.report_seconds.max(1),
        usage_interval_ms: arguments.usage_interval_ms.max(100),
        drain_seconds: arguments.drain_seconds,
        probe_bytes: Bytes::new(arguments.probe_bytes.next_multiple_of(2 * Bytes::MIB)),
        probe_deadline: Duration::from_secs(arguments.probe_deadline_seconds),
        driver_guard: DriverGuard {
            mode: arguments.donor_mode,
            dmem_max: arguments.donor_dmem_max.map(Bytes::new),
        },
        scrub_deadline: Duration::from_secs(arguments.scrub_deadline_seconds),
        host_tier_max: arguments.host_tier_max.map(Bytes::new),
        escape_policy: arguments.donor_escape,
        probe_on_start: !arguments.no_probe_on_start,
        boot_id: arguments.boot_id,
        failpoint: arguments.failpoint,
    })
}
