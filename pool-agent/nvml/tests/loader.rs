//! The stand-in through the real loader, before the simulated driver: a C program that knows nothing of pools reads NVML.

#![allow(clippy::unwrap_used, reason = "a test that cannot unwrap has failed")]
#![allow(clippy::disallowed_methods, reason = "tests own their clock")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tarn_protocol::hardware::{LinkClass, LinkGrade};
use tarn_protocol::ids::{InstanceId, LeaseId};
use tarn_protocol::pool_config::{Donor, FILE_NAME, Policy, PoolConfig, Primary, VERSION};
use tarn_protocol::units::{Bytes, Generation, Timestamp};
use tarn_sim::Host;

const NOT_SUPPORTED: &str = "3";
const NOT_FOUND: &str = "6";
const INVALID_ARGUMENT: &str = "2";
const DONOR_BYTES: u64 = 23 << 30;

/// Where cargo puts what it builds: two directories above a test's own executable.
fn artefact(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().unwrap().parent().unwrap().join(name);
    assert!(path.exists(), "{} is missing: run `make build` first", path.display());
    path
}

struct Bench {
    directory: tempfile::TempDir,
    host: Host,
    reader: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let artefacts = artefact("libtarn_sim_cuda.so");
        let host =
            Host::create(&directory.path().join("host"), "rtx4090-x8-seed", 7, artefacts.parent().unwrap())
                .unwrap();
        let reader = directory.path().join("reader");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reader.c");
        let compiled = Command::new("cc").arg(source).arg("-o").arg(&reader).arg("-ldl").status().unwrap();
        assert!(compiled.success());
        let seat = directory.path().join("lib");
        std::fs::create_dir(&seat).unwrap();
        std::fs::copy(artefact("libtarn_standin_nvml.so"), seat.join("libnvidia-ml.so.1")).unwrap();
        symlink(host.lib_dir().join("libnvidia-ml.so.1"), seat.join("libnvidia-ml-real.so.1")).unwrap();
        std::fs::copy(artefact("libtarn_standin_cuda.so"), seat.join("libcuda.so.1")).unwrap();
        // The names without version, as the agent makes them.
        symlink("libcuda.so.1", seat.join("libcuda.so")).unwrap();
        symlink("libnvidia-ml.so.1", seat.join("libnvidia-ml.so")).unwrap();
        symlink(host.lib_dir().join("libcuda.so.1"), seat.join("libcuda-real.so.1")).unwrap();
        Self { directory, host, reader }
    }

    fn seat(&self) -> PathBuf {
        self.directory.path().join("lib")
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("broker.sock")
    }

    fn pool(&self, donors: std::ops::Range<usize>) -> PoolConfig {
        let card = |at: usize| &self.host.gpus()[at];
        let at = Timestamp::from_micros(1_000_000);
        PoolConfig {
            version: VERSION,
            instance_id: InstanceId::new(at, 1),
            lease_id: LeaseId::new(at, 2),
            generation: Generation::new(1),
            primary: Primary {
                uuid: card(0).uuid.parse().unwrap(),
                pci_bus_id: card(0).pci.clone(),
                minor: 0,
                memory_bytes: Bytes::mib(24560),
                cap_bytes: None,
            },
            donors: donors
                .map(|at| Donor {
                    uuid: card(at).uuid.parse().unwrap(),
                    pci_bus_id: card(at).pci.clone(),
                    minor: u32::try_from(at).unwrap(),
                    reserved_bytes: Bytes::new(DONOR_BYTES),
                    link_class: LinkClass::PcieP2p,
                    grade: LinkGrade::B,
                    read_mb_per_second: 22_900,
                    certificate_id: None,
                })
                .collect(),
            policy: Policy::default(),
            broker_socket: self.socket(),
            standin_log: self.seat().join("standin.log"),
            donors_on_primary: false,
            host_tier_bytes: None,
        }
    }

    fn write(&self, pool: &PoolConfig) {
        std::fs::write(self.seat().join(FILE_NAME), serde_json::to_vec(pool).unwrap()).unwrap();
    }

    fn broker(&self) -> Broker {
        let mut child = Command::new(artefact("tarn-broker"))
            .arg("--config")
            .arg(self.seat().join(FILE_NAME))
            .arg("--socket")
            .arg(self.socket())
            .arg("--state")
            .arg(self.directory.path().join("ledger.json"))
            .arg("--nvml")
            .arg(self.host.lib_dir().join("libnvidia-ml.so.1"))
            .env("LD_LIBRARY_PATH", self.host.lib_dir())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Broker(child)
    }

    fn compile(&self, name: &str) -> PathBuf {
        let program = self.directory.path().join(name);
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name).with_extension("c");
        let compiled = Command::new("cc").arg(source).arg("-o").arg(&program).arg("-ldl").status().unwrap();
        assert!(compiled.success(), "{name}.c does not compile");
        program
    }

    fn answers(&self, program: &Path) -> Vec<String> {
        let output = Command::new(program).env_clear().env("LD_LIBRARY_PATH", self.seat()).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "ended with {} after:\n{text}", output.status);
        text.lines().map(str::to_owned).collect()
    }

    /// What CUDA and NVML say of memory in one process, before, while and after it holds `bytes`.
    fn windows(&self, bytes: u64) -> Vec<Window> {
        let mut command = Command::new(self.compile("windows"));
        command.arg(bytes.to_string()).env_clear().env("LD_LIBRARY_PATH", self.seat());
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.lines().count() == 3, "{text}");
        text.lines().map(window).collect()
    }

    /// What the program printed, by key.
    fn read(&self) -> BTreeMap<String, String> {
        let foreign = &self.host.gpus()[1];
        let output = Command::new(&self.reader)
            .args([&foreign.uuid, &foreign.pci])
            .env_clear()
            .env("LD_LIBRARY_PATH", self.seat())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        assert!(output.stderr.is_empty(), "the stand-in prints nothing");
        text.lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(key, value)| (key.into(), value.into()))
            .collect()
    }
}

type Window = BTreeMap<String, u64>;

fn window(line: &str) -> Window {
    let figures = line.split(' ').filter_map(|word| word.split_once('='));
    figures.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

/// Every window shows `total`, and the same bytes free.
fn agree(window: &Window, total: u64) {
    for name in ["cuda-device", "cuda-total", "v1-total", "v2-total"] {
        assert_eq!(window[name], total, "{name}: {window:?}");
    }
    for name in ["v1-free", "v2-free"] {
        assert_eq!(window[name], window["cuda-free"], "{name}: {window:?}");
    }
    for name in ["v1-used", "v2-used"] {
        assert_eq!(window[name], total - window["cuda-free"], "{name}: {window:?}");
    }
}

struct Broker(Child);

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn m10_one_card_with_the_pools_total_in_both_memory_forms() {
    let bench = Bench::new();
    let pool = bench.pool(1..4);
    bench.write(&pool);
    let _broker = bench.broker();
    let seen = bench.read();
    assert_eq!(seen["count"], "1");
    assert_eq!(seen["uuid"], pool.primary.uuid.as_str());
    assert_eq!(seen["index"], "0");
    assert_eq!(seen["total"], pool.total_bytes().to_string());
    assert_eq!(seen["total-v2"], seen["total"]);
    assert_eq!(seen["sum-v2"], seen["total"]);
    assert_eq!(seen["free-v2"], seen["free"]);
    assert_eq!(seen["name"], "NVIDIA GeForce RTX 4090");
    let free: u64 = seen["free"].parse().unwrap();
    assert!(free > 3 * DONOR_BYTES && free <= pool.total_bytes().get());
}

#[test]
fn m10_cuda_and_nvml_agree_before_during_and_after_a_spill() {
    let bench = Bench::new();
    let pool = bench.pool(1..4);
    bench.write(&pool);
    let _broker = bench.broker();
    let taken = 40 << 30;
    let [before, during, after] = bench.windows(taken).try_into().unwrap();
    for moment in [&before, &during, &after] {
        agree(moment, pool.total_bytes().get());
    }
    assert!(during["cuda-free"] + taken <= before["cuda-free"], "{before:?} {during:?}");
    assert!(during["own"] >= taken, "what it spilled is the process's own: {during:?}");
    assert!(after["own"] < taken, "{after:?}");
}

#[test]
fn m10_cuda_and_nvml_agree_on_a_pool_without_the_donor_that_is_masked() {
    let bench = Bench::new();
    let pool = bench.pool(1..4);
    bench.write(&pool);
    let _broker = bench.broker();
    let node = bench.host.device_node(2);
    std::fs::rename(&node, node.with_extension("away")).unwrap();
    for moment in bench.windows(30 << 30) {
        agree(&moment, pool.total_bytes().get() - DONOR_BYTES);
    }
    assert_eq!(bench.read()["total"], (pool.total_bytes().get() - DONOR_BYTES).to_string(), "alone too");
}

#[test]
fn m10_cuda_and_nvml_agree_while_a_broker_is_dead_and_when_another_is_there() {
    let bench = Bench::new();
    let pool = bench.pool(1..4);
    bench.write(&pool);
    let broker = bench.broker();
    let taken: u64 = 40 << 30;
    let mut program = Command::new(bench.compile("windows"));
    program.args([&taken.to_string(), "pause"]).env_clear().env("LD_LIBRARY_PATH", bench.seat());
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut next = || window(&lines.next().unwrap().unwrap());
    let (before, during) = (next(), next());
    let mut stdin = program.stdin.take().unwrap();
    let mut again = || {
        writeln!(stdin, "look").unwrap();
        next()
    };
    drop(broker);
    let alone = again();
    agree(&alone, pool.total_bytes().get());
    assert!(alone["cuda-free"] < pool.primary_bytes().get(), "no donor memory can be had now: {alone:?}");
    let _broker = bench.broker();
    let start = Instant::now();
    let mut back = again();
    while back["cuda-free"] != during["cuda-free"] && start.elapsed() < Duration::from_secs(20) {
        back = again();
    }
    agree(&back, pool.total_bytes().get());
    assert_eq!((back["cuda-free"], back["own"]), (during["cuda-free"], during["own"]), "{before:?}");
    drop(stdin);
    assert!(program.wait().unwrap().success());
}

/// Memory of the host is in no total, nor free, nor anybody's own, used or not.
#[test]
fn m10_the_host_tier_is_in_no_window() {
    let bench = Bench::new();
    let mut pool = bench.pool(1..4);
    pool.host_tier_bytes = Some(Bytes::gib(16));
    bench.write(&pool);
    let _broker = bench.broker();
    let total = pool.total_bytes().get();
    for (taken, spilled_to_host) in [(40 << 30, false), (total + (2 << 30), true)] {
        let [before, during, after] = bench.windows(taken).try_into().unwrap();
        for moment in [&before, &during, &after] {
            agree(moment, total);
        }
        assert_eq!(before["cuda-free"], after["cuda-free"]);
        assert!(during["cuda-free"] < Bytes::gib(1).get() || !spilled_to_host, "{during:?}");
        assert!(during["own"] <= total, "{during:?}");
    }
}

/// A program is told one total for its life, whatever the operator does to the quota meanwhile.
#[test]
fn m10_cuda_and_nvml_agree_when_a_quota_changes() {
    let bench = Bench::new();
    let mut pool = bench.pool(1..4);
    bench.write(&pool);
    let broker = bench.broker();
    let total = pool.total_bytes().get();
    let mut program = Command::new(bench.compile("windows"));
    program.args([&(40u64 << 30).to_string(), "pause"]).env_clear().env("LD_LIBRARY_PATH", bench.seat());
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut next = || window(&lines.next().unwrap().unwrap());
    let (_, during) = (next(), next());
    agree(&during, total);
    let mut stdin = program.stdin.take().unwrap();
    let is_free = |window: &Window| window["cuda-free"] > Bytes::gib(12).get();
    for (donor_bytes, some_free) in [(Bytes::gib(2), false), (Bytes::mib(24_000), true)] {
        for donor in &mut pool.donors {
            donor.reserved_bytes = donor_bytes;
        }
        bench.write(&pool);
        let id = broker.0.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
        // A look reads one window after the other, and a quota changes donor by donor: two equal looks are one moment.
        let start = Instant::now();
        let mut looks = [during.clone(), during.clone()];
        while start.elapsed() < Duration::from_secs(20) {
            writeln!(stdin, "look").unwrap();
            looks = [looks[1].clone(), next()];
            if looks[0] == looks[1] && is_free(&looks[1]) == some_free {
                break;
            }
        }
        let [_, seen] = looks;
        agree(&seen, total);
        assert_eq!(is_free(&seen), some_free, "{seen:?}");
    }
    drop(stdin);
    assert!(program.wait().unwrap().success());
}

#[test]
fn m10_cuda_and_nvml_agree_under_a_cap() {
    let bench = Bench::new();
    let mut pool = bench.pool(1..1);
    pool.primary.cap_bytes = Some(Bytes::gib(6));
    bench.write(&pool);
    let _broker = bench.broker();
    let [before, during, after] = bench.windows(4 << 30).try_into().unwrap();
    for moment in [&before, &during, &after] {
        agree(moment, 6 << 30);
    }
    assert_eq!((before["cuda-free"], during["cuda-free"]), (6 << 30, 2 << 30));
    assert_eq!(after["cuda-free"], 6 << 30);
}

#[test]
fn donors_are_not_found_by_any_route_and_links_lead_nowhere() {
    let bench = Bench::new();
    bench.write(&bench.pool(1..4));
    let _broker = bench.broker();
    let seen = bench.read();
    assert_eq!(seen["index-1"], INVALID_ARGUMENT);
    assert_eq!(seen["by-uuid"], NOT_FOUND);
    assert_eq!(seen["by-uuid-handle"], "0");
    assert_eq!(seen["by-pci"], NOT_FOUND);
    assert_eq!(seen["own-uuid"], "0");
    assert_eq!(seen["nvlink"], NOT_SUPPORTED);
}

#[test]
fn m7_null_and_wrong_arguments_answer_as_the_real_library_does() {
    let bench = Bench::new();
    let program = bench.compile("nulls");
    let bare = bench.answers(&program);
    bench.write(&bench.pool(1..4));
    let _broker = bench.broker();
    let pooled = bench.answers(&program);
    // A function that this library lacks is "function not found" here.
    let expected: Vec<String> = bare.iter().map(|line| line.replace("absent", "13")).collect();
    assert!(pooled.len() > 3 * 60, "{} cases", pooled.len());
    assert_eq!(pooled, expected);
    let ready = pooled.iter().filter(|line| line.starts_with("ready"));
    let passed: Vec<&String> = ready.filter(|line| line.ends_with(" 0")).collect();
    assert!(passed.is_empty(), "no wrong call is right: {passed:?}");
    // Every function that the stand-in changes is asked.
    for symbol in changed() {
        assert!(pooled.iter().any(|line| line.split(' ').nth(1) == Some(&symbol)), "{symbol} is not asked");
    }
}

/// What the stand-in exports.
fn changed() -> Vec<String> {
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--format=just-symbols"])
        .arg(artefact("libtarn_standin_nvml.so"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let names: Vec<String> =
        text.lines().filter(|name| name.starts_with("nvml")).map(str::to_owned).collect();
    assert!(names.len() > 25, "{names:?}");
    names
}

#[test]
fn without_a_pool_config_nothing_changes() {
    let bench = Bench::new();
    let seen = bench.read();
    assert_eq!(seen["count"], "8");
    assert_eq!(seen["by-uuid"], "0");
    assert_eq!(seen["nvlink"], "0");
}

#[test]
fn without_a_broker_the_primary_is_shown_alone_and_the_log_says_why() {
    let bench = Bench::new();
    let pool = bench.pool(1..4);
    bench.write(&pool);
    let seen = bench.read();
    assert_eq!(seen["count"], "1");
    assert_eq!(seen["total"], pool.primary_bytes().to_string());
    let log = std::fs::read_to_string(&pool.standin_log).unwrap();
    assert!(log.contains("no broker answers"), "{log}");
}

#[test]
fn an_unreadable_pool_config_shows_the_bare_library_and_the_log_says_why() {
    let bench = Bench::new();
    std::fs::write(bench.seat().join(FILE_NAME), "{").unwrap();
    let seen = bench.read();
    assert_eq!(seen["init"], "0");
    let log = std::fs::read_to_string(bench.seat().join("standin.log")).unwrap();
    assert!(log.contains("not valid JSON"), "{log}");
}
