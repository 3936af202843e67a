//! The process itself, on the simulated driver.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tarn_protocol::broker_wire::{Op, Request, Status};
use tarn_protocol::pool_config::PoolConfig;
use tarn_sim::Host;

use crate::bench_of_clients::{Client, config};

fn artefacts() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned()
}

/// A simulated host, a pool of its first card and `donors`, and the files of a broker.
struct Site {
    dir: tempfile::TempDir,
    host: Host,
}

impl Site {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::create(&dir.path().join("host"), "rtx4090-x8-seed", 1, &artefacts())
            .expect("run `make build` first");
        Self { dir, host }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A pool of two donors: the second card, and one that may not exist.
    fn write_pool(&self, second: &str) {
        let mut pool: PoolConfig = config(2, 1024);
        pool.primary.uuid = self.host.gpus()[0].uuid.parse().unwrap();
        pool.donors[0].uuid = self.host.gpus()[1].uuid.parse().unwrap();
        pool.donors[1].uuid = second.parse().unwrap();
        std::fs::write(self.at("pool.json"), serde_json::to_vec(&pool).unwrap()).unwrap();
    }

    /// The broker, with the driver and NVML found in these places.
    fn broker(&self, driver: &std::path::Path, nvml: &std::path::Path) -> Command {
        let mut broker = Command::new(env!("CARGO_BIN_EXE_tarn-broker"));
        broker.arg("--config").arg(self.at("pool.json")).arg("--socket").arg(self.at("broker.sock"));
        broker.arg("--state").arg(self.at("ledger.json")).arg("--nvml").arg(nvml);
        broker.env_clear().env("LD_LIBRARY_PATH", driver).env("RUST_LOG", "warn").env("NO_COLOR", "1");
        broker
    }

    /// How a broker that cannot start ends: at once, with one line that says why.
    fn refused(&self, mut broker: Command, why: &[&str]) {
        let start = std::time::Instant::now();
        let output = broker.output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && start.elapsed().as_secs() < 10, "{told}");
        assert!(output.stdout.is_empty(), "it never said that it is ready");
        assert!(why.iter().all(|word| told.contains(word)) && !told.contains("panicked"), "{why:?}: {told}");
        assert!(!self.at("broker.sock").exists(), "nobody is lured to a socket that nobody serves");
    }
}

#[test]
fn a_donor_that_the_driver_lacks_gives_nothing_and_is_named() {
    let site = Site::new();
    let absent = "GPU-00000000-0000-0000-0000-00000000dead";
    site.write_pool(absent);
    let nvml = site.host.lib_dir().join("libnvidia-ml.so.1");
    let mut broker = site
        .broker(&site.host.lib_dir(), &nvml)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(broker.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let observer = tarn_broker::observer::Observer::connect(&site.at("broker.sock")).unwrap();
    let capacities: Vec<u64> = observer.donors().iter().map(|donor| donor.capacity_bytes).collect();
    assert_eq!(capacities, [1024 * (2 << 20), 0], "the page tells what there is");
    let client = Client::hello(&site.at("broker.sock"), 1);
    let of =
        |donor: u32| client.ask(Request { bytes: 64 << 20, donor, ..Request::new(Op::Lease) }).unwrap().0;
    assert_eq!(of(1).status, Status::OutOfMemory as u32);
    assert!(of(0).ok());
    let (reply, chunks) = client.ask(Request::new(Op::Probe)).unwrap();
    assert_eq!((reply.ok(), reply.bytes, chunks.len()), (true, 1, 1), "only the first can be proven");
    broker.kill().unwrap();
    let told = std::io::read_to_string(broker.stderr.take().unwrap()).unwrap();
    broker.wait().unwrap();
    assert_eq!(told.matches(absent).count(), 1, "{told}");
}

#[test]
fn what_keeps_a_broker_from_starting_is_one_clear_line() {
    let site = Site::new();
    site.write_pool(&site.host.gpus()[2].uuid);
    let lib = site.host.lib_dir();
    let nvml = lib.join("libnvidia-ml.so.1");
    site.refused(site.broker(&site.at("nowhere"), &nvml), &["libcuda.so.1"]);
    site.refused(site.broker(&lib, &site.at("nowhere")), &["NVML cannot be loaded"]);

    std::fs::write(site.at("ledger.json"), "{\"leased\":").unwrap();
    site.refused(site.broker(&lib, &nvml), &["ledger.json", "snapshot"]);
    std::fs::remove_file(site.at("ledger.json")).unwrap();

    std::fs::write(site.at("pool.json"), "{}").unwrap();
    site.refused(site.broker(&lib, &nvml), &["pool.json"]);
    std::fs::remove_file(site.at("pool.json")).unwrap();
    site.refused(site.broker(&lib, &nvml), &["pool.json"]);
}

/// A driver of another world: a library of that name that lacks what a broker calls, or whose start fails.
#[test]
fn a_driver_that_is_none_is_told_and_not_waited_for() {
    let site = Site::new();
    site.write_pool(&site.host.gpus()[2].uuid);
    let nvml = site.host.lib_dir().join("libnvidia-ml.so.1");
    let old = "int cuInit(unsigned flags) { (void)flags; return 803; } int cuDeviceGetCount, cuDeviceGet, cuDeviceGetUuid_v2,
        cuDeviceGetAttribute, cuMemCreate, cuMemRelease";
    for (name, source, why) in [
        ("empty", "int nothing;".to_owned(), "cuInit"),
        ("old", format!("{old};"), "cuMemExportToShareableHandle"),
        ("failing", format!("{old}, cuMemExportToShareableHandle;"), "803"),
    ] {
        let place = site.at(name);
        std::fs::create_dir(&place).unwrap();
        std::fs::write(place.join("driver.c"), source).unwrap();
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(place.join("libcuda.so.1"))
            .arg(place.join("driver.c"))
            .status();
        assert!(made.unwrap().success());
        site.refused(site.broker(&place, &nvml), &[why]);
    }
}

#[test]
fn the_process_says_ready_opens_no_context_and_ends_when_asked() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::create(&dir.path().join("host"), "rtx4090-x8-seed", 1, &artefacts())
        .expect("run `make build` first");
    let mut pool: PoolConfig = config(1, 1024);
    pool.primary.uuid = host.gpus()[0].uuid.parse().unwrap();
    pool.donors[0].uuid = host.gpus()[1].uuid.parse().unwrap();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("pool.json"), serde_json::to_vec(&pool).unwrap()).unwrap();
    let mut broker = Command::new(env!("CARGO_BIN_EXE_tarn-broker"))
        .arg("--config")
        .arg(at("pool.json"))
        .arg("--socket")
        .arg(at("broker.sock"))
        .arg("--state")
        .arg(at("ledger.json"))
        .arg("--nvml")
        .arg(host.lib_dir().join("libnvidia-ml.so.1"))
        .env_clear()
        .env("LD_LIBRARY_PATH", host.lib_dir())
        .env("RUST_LOG", "warn")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(broker.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");

    let used = || host.used_bytes(&host.gpus()[1].uuid).unwrap().unwrap();
    assert_eq!(used(), 0, "nothing is allocated up front");
    let client = Client::hello(&at("broker.sock"), 1);
    let (reply, chunk) =
        client.ask(Request { bytes: 64 << 20, exact: 1, ..Request::new(Op::Lease) }).unwrap();
    assert!(reply.ok() && chunk.len() == 1);
    assert_eq!(used(), 64 << 20);
    assert!(host.processes(1).unwrap().is_empty(), "memory without a process");

    // SAFETY: a signal to our own child.
    unsafe { libc::kill(i32::try_from(broker.id()).unwrap(), libc::SIGTERM) };
    assert!(broker.wait().unwrap().success());
    assert!(client.hung_up());
}

/// Processor time of a process so far, in ticks.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    after_name[11].parse::<u64>().unwrap() + after_name[12].parse::<u64>().unwrap()
}

/// A tenant can fill the broker with connections and with descriptors that it offers. Who knocks then is turned away at once: a knock that
/// stays unanswered would wake the broker for ever.
#[test]
fn a_broker_without_a_descriptor_to_spare_turns_connections_away_and_rests() {
    let site = Site::new();
    site.write_pool("GPU-00000000-0000-0000-0000-00000000dead");
    let nvml = site.host.lib_dir().join("libnvidia-ml.so.1");
    let plain = site.broker(&site.host.lib_dir(), &nvml);
    let mut narrow = Command::new("sh");
    narrow.args(["-c", "ulimit -n 64; exec \"$0\" \"$@\""]).arg(plain.get_program()).args(plain.get_args());
    narrow.env_clear();
    narrow.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut broker = narrow.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(broker.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let early = Client::hello(&site.at("broker.sock"), 1);
    let crowd: Vec<Client> = (0..100).map(|_| Client::connect(&site.at("broker.sock"))).collect();
    assert!(crowd[99].hung_up(), "turned away");
    let before = ticks(broker.id());
    std::thread::sleep(std::time::Duration::from_secs(1));
    let spent = ticks(broker.id()) - before;
    assert!(spent < 30, "the broker is awake for {spent} of 100 ticks and has nothing to do");
    let (reply, _) = early.ask(Request::new(Op::Settle)).expect("who is inside is served");
    assert!(reply.ok());
    drop(crowd);
    let late = Client::connect(&site.at("broker.sock"));
    assert_eq!(late.ask(Request { nonce: 2, ..Request::new(Op::Hello) }).expect("room again").0.status, 0);
    assert!(late.lease(1).ok());
    broker.kill().unwrap();
    let told = String::from_utf8(broker.wait_with_output().unwrap().stderr).unwrap();
    assert!(told.lines().count() < 200, "a line a wake-up: {}", told.lines().count());
}
