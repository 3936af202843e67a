//! One simulated host with its agent.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tarn_protocol::control::{DesiredDonor, DesiredInstance, Goal, InstanceSpec, Phase};
use tarn_protocol::hardware::{LinkClass, LinkGrade};
use tarn_protocol::ids::{GpuUuid, InstanceId, LeaseId};
use tarn_protocol::pool_config::Policy;
use tarn_protocol::units::{Generation, Timestamp};
use tarn_sim::Host as SimHost;

use crate::control_plane::{ControlPlane, TOKEN, eventually};

/// Where this workspace's artefacts are.
pub fn artefacts() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().and_then(Path::parent).unwrap().to_owned()
}

pub fn artefact(name: &str) -> PathBuf {
    let path = artefacts().join(name);
    assert!(path.exists(), "{} is missing: run `make build` first", path.display());
    path
}

pub struct TestHost {
    pub sim: SimHost,
    pub control_plane: ControlPlane,
    directory: tempfile::TempDir,
    agent: Option<Child>,
    /// Instances that tests started: what is left of them goes when the test ends, however it ends.
    extra: Vec<String>,
}

static SERIAL: AtomicU32 = AtomicU32::new(1);

impl TestHost {
    pub fn new(preset: &str) -> Self {
        artefact("libtarn_standin_cuda.so");
        artefact("tarn-broker");
        artefact("tarn-witness");
        let directory = tempfile::Builder::new().prefix("tarn").tempdir().unwrap();
        let seed = u64::from(SERIAL.fetch_add(1, Ordering::Relaxed)) + u64::from(std::process::id()) * 1000;
        let sim = SimHost::create(&directory.path().join("host"), preset, seed, &artefacts()).unwrap();
        Self { sim, control_plane: ControlPlane::start(), directory, agent: None, extra: vec![] }
    }

    pub fn state_dir(&self) -> PathBuf {
        self.directory.path().join("agent")
    }

    pub fn arguments(mut self, arguments: &[&str]) -> Self {
        self.extra = arguments.iter().map(|text| (*text).to_owned()).collect();
        self
    }

    pub fn start_agent(&mut self, failpoint: Option<&str>) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.directory.path().join("agent.log"))
            .unwrap();
        let mut command = Command::new(artefact("tarn-agent"));
        command.args(["run", "--server", &self.control_plane.url(), "--name", "test-host"]);
        command.arg("--state-dir").arg(self.state_dir());
        command.arg("--driver-dir").arg(self.sim.lib_dir());
        command.args(["--report-seconds", "1", "--usage-interval-ms", "500", "--drain-seconds", "1"]);
        command.args(["--probe-bytes", "2097152"]);
        if !self.extra.iter().any(|text| text == "probe-on-start") {
            command.arg("--no-probe-on-start");
        }
        command.args(self.extra.iter().filter(|text| *text != "probe-on-start"));
        if let Some(name) = failpoint {
            command.args(["--failpoint", name]);
        }
        command.env("TARN_JOIN_TOKEN", TOKEN);
        self.agent = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    /// SIGKILL; returns once the process is gone.
    pub fn kill_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }

    /// Whether the agent has ended by itself, as at a failpoint.
    pub fn agent_died(&mut self) -> bool {
        self.agent.as_mut().is_some_and(|agent| agent.try_wait().unwrap().is_some())
    }

    pub fn agent_log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("agent.log")).unwrap_or_default()
    }

    pub fn card(&self, index: usize) -> GpuUuid {
        self.sim.gpus()[index].uuid.parse().unwrap()
    }

    /// An instance of `command` on cards by index, the primary first.
    pub fn instance(&self, cards: &[usize], command: &[&str]) -> DesiredInstance {
        let serial = u128::from(SERIAL.fetch_add(1, Ordering::Relaxed));
        let entropy = serial | u128::from(std::process::id()) << 40;
        let donors = cards[1..].iter().map(|card| DesiredDonor {
            uuid: self.card(*card),
            link_class: LinkClass::Nvlink,
            grade: LinkGrade::A,
            read_mb_per_second: 50_000,
            certificate_id: None,
        });
        DesiredInstance {
            instance_id: InstanceId::new(Timestamp::from_micros(1_000_000), entropy),
            lease_id: LeaseId::new(Timestamp::from_micros(1_000_000), entropy),
            generation: Generation::new(1),
            goal: Goal::Running,
            spec: InstanceSpec {
                command: command.iter().map(|word| (*word).to_owned()).collect(),
                env: vec![],
                ssh_public_keys: vec![],
                primary: self.card(cards[0]),
                donors: donors.collect(),
                policy: Policy::default(),
                cap_bytes: None,
            },
            run_until: None,
        }
    }

    pub fn await_phase(&self, id: &InstanceId, what: &str, wanted: impl Fn(&Phase) -> bool) -> Phase {
        for _ in 0..2400 {
            match self.control_plane.phase(id) {
                Some(phase) if wanted(&phase) => return phase,
                _ => std::thread::sleep(std::time::Duration::from_millis(25)),
            }
        }
        panic!("{what}: {:?}\n{}", self.control_plane.phase(id), self.agent_log());
    }

    pub fn await_running(&self, instance: &DesiredInstance) {
        let of_generation = || {
            self.control_plane.with(|ledger| {
                let seen = ledger.last.as_ref()?.instances.iter();
                let mut seen = seen.filter(|seen| seen.instance_id == instance.instance_id);
                seen.next()
                    .filter(|seen| seen.generation == instance.generation)
                    .map(|seen| seen.phase.clone())
            })
        };
        eventually("never ran", || match of_generation()? {
            phase @ (Phase::Failed { .. } | Phase::Stopped { .. }) => panic!("{phase:?}"),
            phase => matches!(phase, Phase::Running { .. }).then_some(()),
        });
    }

    /// Wants it gone and waits for the proof.
    pub fn remove(&self, instance: &DesiredInstance) {
        self.control_plane.want(&DesiredInstance { goal: Goal::Absent, ..instance.clone() });
        eventually("never gone", || {
            let gone = self.control_plane.phase(&instance.instance_id).is_none();
            (gone && !self.instance_dir(instance).exists()).then_some(())
        });
    }

    pub fn instance_dir(&self, instance: &DesiredInstance) -> PathBuf {
        self.state_dir().join("instances").join(instance.instance_id.as_str())
    }

    /// Runs a command inside, as an operator does.
    pub fn exec(&self, instance: &DesiredInstance, command: &[&str]) -> std::process::Output {
        Command::new(artefact("tarn-agent"))
            .arg("exec")
            .arg("--state-dir")
            .arg(self.state_dir())
            .arg(instance.instance_id.as_str())
            .arg("--")
            .args(command)
            .output()
            .unwrap()
    }

    /// Bytes in use on every card.
    pub fn used(&self) -> Vec<u64> {
        let gpus = self.sim.gpus();
        gpus.iter().map(|gpu| self.sim.used_bytes(&gpu.uuid).unwrap().unwrap()).collect()
    }

    /// [`Self::used`], once nothing is, or for too long something: links are proven again when a pool that was in the way ends.
    pub fn used_at_rest(&self) -> Vec<u64> {
        for _ in 0..600 {
            if self.used().iter().all(|bytes| *bytes == 0) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        self.used()
    }

    /// An artefact by a path inside this host's own directory, which no other test's processes have.
    pub fn linked(&self, name: &str) -> PathBuf {
        let own = self.directory.path().join(name);
        std::os::unix::fs::symlink(artefact(name), &own).unwrap();
        own
    }
}

/// Host pids whose command line has `word`.
pub fn processes_with(word: &str) -> Vec<u32> {
    tarn_agent::process_mark::find_by_arguments(&[word]).into_iter().map(|mark| mark.pid).collect()
}

impl Drop for TestHost {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- agent log ---\n{}", self.agent_log());
        }
        if let Some(agent) = &mut self.agent {
            let _gone = agent.kill();
            let _reaped = agent.wait();
        }
        let root = self.directory.path().to_string_lossy().into_owned();
        for pid in tarn_agent::process_mark::all_pids() {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            if pid != std::process::id() && String::from_utf8_lossy(&line).contains(&root) {
                tarn_agent::process_mark::signal_pid(pid, rustix::process::Signal::KILL);
            }
        }
    }
}
