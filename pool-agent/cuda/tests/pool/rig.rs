//! A simulated host, a pool on it with a running broker, and tenant programs inside the pool: all through the real loader.

use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tarn_broker::observer::Observer;
use tarn_protocol::hardware::{LinkClass, LinkGrade};
use tarn_protocol::ids::{GpuUuid, InstanceId, LeaseId};
use tarn_protocol::pool_config::{self, Donor, Placement, Policy, PoolConfig, Primary};
use tarn_protocol::units::{Bytes, Generation, Timestamp};
use tarn_sim::Host;

/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// The kernels that links are probed with.
pub const PTX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocol/src/probe.ptx");

/// Where the built artefacts lie: beside the test executable's directory.
pub fn artefacts() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().parent().unwrap().to_owned()
}

pub fn artefact(name: &str) -> PathBuf {
    let path = artefacts().join(name);
    assert!(path.exists(), "{} is missing: run `make build` first", path.display());
    path
}

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The C tenant: with the driver looked up at run time, or linked against it.
pub fn tenant(linked: bool) -> PathBuf {
    program("tenant", linked)
}

/// A C program of the tests, compiled once a test run.
pub fn program(name: &str, linked: bool) -> PathBuf {
    static COMPILED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let kind = if linked { "linked" } else { "plain" };
    let program = temporary.join(format!("{name}-{kind}-{}", std::process::id()));
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if !compiled.contains(&program) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"])
            .arg(&program)
            .arg(&source);
        if linked {
            // What a toolkit's stub library does: the name at link time, the functions at run time.
            let stub = temporary.join(format!("stub-{}", std::process::id()));
            std::fs::create_dir_all(&stub).unwrap();
            std::fs::copy(artefact("libtarn_sim_cuda.so"), stub.join("libcuda.so")).unwrap();
            cc.arg("-DLINKED").arg("-L").arg(&stub).args(["-Wl,--no-as-needed", "-lcuda"]);
        }
        let status = cc.arg("-ldl").status().expect("a C compiler is installed");
        assert!(status.success(), "{name}.c does not compile");
        compiled.insert(program.clone());
    }
    program
}

pub struct Shape {
    pub preset: &'static str,
    pub primary: usize,
    pub donors: Vec<usize>,
    pub donor_bytes: Bytes,
    pub cap_bytes: Option<Bytes>,
    pub policy: Policy,
    pub host_tier_bytes: Option<Bytes>,
    /// Tells pools apart.
    pub lease: u128,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            preset: "rtx4090-x8-seed",
            primary: 0,
            donors: vec![1, 2, 3],
            donor_bytes: Bytes::mib(24_550),
            cap_bytes: None,
            policy: Policy::default(),
            host_tier_bytes: None,
            lease: 2,
        }
    }
}

impl Shape {
    pub fn placed(placement: Placement, granule: Bytes) -> Self {
        let policy = Policy { placement, granule_bytes: granule, ..Policy::default() };
        Self { policy, ..Self::default() }
    }
}

/// A pool with everything around it. Dropping it ends the broker.
pub struct Rig {
    _dir: tempfile::TempDir,
    pub host: Host,
    pub config: PoolConfig,
    pub instance: PathBuf,
    pub cards: Vec<usize>,
    broker: Option<Child>,
}

impl Rig {
    pub fn new(shape: &Shape) -> Self {
        let mut rig = Self::without_broker(shape);
        rig.start_broker(&[]);
        rig
    }

    /// Another pool on the same host, with a broker of its own. The host lives as long as the rig that made it.
    pub fn beside(&self, shape: &Shape) -> Self {
        let mut rig = Self::on(tempfile::tempdir().unwrap(), self.host.clone(), shape);
        rig.start_broker(&[]);
        rig
    }

    pub fn without_broker(shape: &Shape) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::create(&dir.path().join("host"), shape.preset, 1, &artefacts())
            .expect("run `make build` first");
        Self::on(dir, host, shape)
    }

    fn on(dir: tempfile::TempDir, host: Host, shape: &Shape) -> Self {
        let instance = dir.path().join("instance");
        let lib = instance.join("lib");
        std::fs::create_dir_all(&lib).unwrap();
        let driver = host.lib_dir();
        std::os::unix::fs::symlink(artefact("libtarn_standin_cuda.so"), lib.join("libcuda.so.1")).unwrap();
        std::os::unix::fs::symlink(driver.join("libcuda.so.1"), lib.join("libcuda-real.so.1")).unwrap();
        let config = configuration(&host, shape, &instance);
        std::fs::write(lib.join(pool_config::FILE_NAME), serde_json::to_vec(&config).unwrap()).unwrap();
        let cards = std::iter::once(shape.primary).chain(shape.donors.iter().copied()).collect();
        Self { _dir: dir, host, config, instance, cards, broker: None }
    }

    pub fn lib(&self) -> PathBuf {
        self.instance.join("lib")
    }

    pub fn start_broker(&mut self, extra: &[&str]) {
        let mut child = Command::new(artefact("tarn-broker"))
            .arg("--config")
            .arg(self.lib().join(pool_config::FILE_NAME))
            .arg("--socket")
            .arg(&self.config.broker_socket)
            .arg("--state")
            .arg(self.instance.join("ledger.json"))
            .arg("--nvml")
            .arg(self.host.lib_dir().join("libnvidia-ml.so.1"))
            .args(extra)
            .env_clear()
            .env("LD_LIBRARY_PATH", self.host.lib_dir())
            .env("RUST_LOG", "warn")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "the broker starts");
        self.broker = Some(child);
    }

    /// Donors give `bytes` each from now on: the config is rewritten and the broker told.
    pub fn resize(&mut self, bytes: Bytes) {
        self.rewrite(bytes);
        self.resize_as_it_is();
    }

    /// As [`Rig::resize`], and nobody is told.
    pub fn rewrite(&mut self, bytes: Bytes) {
        for donor in &mut self.config.donors {
            donor.reserved_bytes = bytes;
        }
        let path = self.lib().join(pool_config::FILE_NAME);
        std::fs::write(path, serde_json::to_vec(&self.config).unwrap()).unwrap();
    }

    /// Tells the broker to look at its config again.
    pub fn resize_as_it_is(&self) {
        self.signal_broker("HUP");
    }

    pub fn signal_broker(&self, name: &str) {
        let broker = self.broker.as_ref().unwrap().id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &broker]).status().unwrap();
        assert!(sent.success());
    }

    /// SIGKILL, as the kernel does it when memory runs out.
    pub fn kill_broker(&mut self) {
        if let Some(mut broker) = self.broker.take() {
            broker.kill().unwrap();
            broker.wait().unwrap();
        }
    }

    pub fn observer(&self) -> Observer {
        Observer::connect(&self.config.broker_socket).unwrap()
    }

    /// Bytes in use on a card of the pool, by the host's own books.
    pub fn used(&self, card: usize) -> u64 {
        let uuid = &self.host.gpus()[card].uuid;
        self.host.used_bytes(uuid).unwrap().unwrap()
    }

    pub fn donors_used(&self) -> u64 {
        self.cards[1..].iter().map(|&card| self.used(card)).sum()
    }

    /// Starts a tenant program in the instance.
    pub fn spawn(&self, how: &str, story: &[&str]) -> Tenant {
        self.spawn_with(how, story, &[])
    }

    pub fn spawn_with(&self, how: &str, story: &[&str], env: &[(&str, &str)]) -> Tenant {
        self.spawn_program("tenant", how, story, env)
    }

    pub fn spawn_program(&self, name: &str, how: &str, story: &[&str], env: &[(&str, &str)]) -> Tenant {
        let linked = matches!(how, "linked" | "next");
        let mut command = Command::new(program(name, linked));
        command.arg(how).args(story).env_clear().env("LD_LIBRARY_PATH", self.lib());
        command.envs(env.iter().copied());
        Tenant::start(command)
    }

    /// What stand-ins wrote to the pool's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.config.standin_log).unwrap_or_default()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.kill_broker();
    }
}

fn configuration(host: &Host, shape: &Shape, instance: &Path) -> PoolConfig {
    let at = Timestamp::from_micros(1);
    let uuid = |card: usize| -> GpuUuid { host.gpus()[card].uuid.parse().unwrap() };
    let donor = |&card: &usize| Donor {
        uuid: uuid(card),
        pci_bus_id: host.gpus()[card].pci.clone(),
        minor: u32::try_from(card).unwrap(),
        reserved_bytes: shape.donor_bytes,
        link_class: LinkClass::PcieP2p,
        grade: LinkGrade::B,
        // Later donors are slower, so that the order is visible.
        read_mb_per_second: 50_000 - 1_000 * card as u64,
        certificate_id: None,
    };
    PoolConfig {
        version: pool_config::VERSION,
        instance_id: InstanceId::new(at, 1),
        lease_id: LeaseId::new(at, shape.lease),
        generation: Generation::new(1),
        primary: Primary {
            uuid: uuid(shape.primary),
            pci_bus_id: host.gpus()[shape.primary].pci.clone(),
            minor: u32::try_from(shape.primary).unwrap(),
            memory_bytes: Bytes::new(host.gpus()[shape.primary].memory_bytes),
            cap_bytes: shape.cap_bytes,
        },
        donors: shape.donors.iter().map(donor).collect(),
        policy: shape.policy.clone(),
        broker_socket: instance.join("broker.sock"),
        standin_log: instance.join("standin.log"),
        donors_on_primary: shape.donors.contains(&shape.primary),
        host_tier_bytes: shape.host_tier_bytes,
    }
}

/// A running tenant program and the facts it has printed.
pub struct Tenant {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    pub facts: HashMap<String, String>,
}

impl Tenant {
    pub fn start(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let stdin = child.stdin.take();
        Self { child, stdin, stdout, facts: HashMap::new() }
    }

    /// Reads facts until the line `stop`, or the end.
    pub fn read_until(&mut self, stop: &str) {
        let mut line = String::new();
        while self.stdout.read_line(&mut line).unwrap() > 0 {
            let text = line.trim_end();
            if let Some((name, value)) = text.split_once('=') {
                self.facts.insert(name.to_owned(), value.to_owned());
            }
            assert!(!text.starts_with("failed"), "tenant: {text}");
            if text == stop {
                return;
            }
            line.clear();
        }
        let status = self.child.wait().unwrap();
        assert!(stop == "the end" && status.success(), "tenant ended with {status} before `{stop}`");
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Sends a command and reads up to the next wait.
    pub fn ask(&mut self, line: &str) {
        self.say(line);
        self.read_until("waiting");
    }

    pub fn end(&mut self) {
        self.read_until("the end");
        assert_eq!(self.facts.get("done").map(String::as_str), Some("1"), "{:?}", self.facts);
    }

    pub fn number(&self, fact: &str) -> u64 {
        let value = self.facts.get(fact).unwrap_or_else(|| panic!("no fact {fact}: {:?}", self.facts));
        value.parse().unwrap()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Tenant {
    fn drop(&mut self) {
        // Already ended in a passing test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
