//! The simulated machine and its agent: the directory of the one, the process of the other.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::{DemoError, screen};

/// The advertised box: eight 24 GB cards in two groups of four.
const PRESET: &str = "rtx4090-x8-seed";
const SEED: u64 = 4090;
const STOP_MAX: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What the demo starts or loads, beside this program.
const ARTEFACTS: [&str; 7] = [
    "tarn-agent",
    "tarn-broker",
    "tarn-witness",
    "libtarn_sim_cuda.so",
    "libtarn_sim_nvml.so",
    "libtarn_standin_cuda.so",
    "libtarn_standin_nvml.so",
];

pub(super) fn require_artefacts(directory: &Path) -> Result<(), DemoError> {
    match ARTEFACTS.into_iter().find(|file| !directory.join(file).exists()) {
        None => Ok(()),
        Some(file) => Err(DemoError::Artefact { file, directory: directory.to_owned() }),
    }
}

/// The simulated host in `data_dir`, made at the first run and found again at the next.
pub(super) fn machine(data_dir: &Path, artefacts: &Path) -> Result<tarn_sim::Host, DemoError> {
    let directory = data_dir.join("host");
    let host = if directory.join("host.json").exists() {
        tarn_sim::Host::open(&directory)?
    } else {
        tarn_sim::Host::create(&directory, PRESET, SEED, artefacts)?
    };
    screen::step(&format!(
        "simulated host {PRESET}: {} × {}, driver and NVML libraries in {}",
        host.gpus().len(),
        host.machine().card.name,
        host.lib_dir().display()
    ));
    screen::step(
        "its NVLink bridges and peer access are invented: real RTX 4090 cards have no NVLink, and stock drivers give them no peer access",
    );
    Ok(host)
}

/// A running `tarn-agent`.
#[derive(Debug)]
pub(super) struct Agent {
    child: Child,
    log: PathBuf,
}

/// How the agent is started.
#[derive(Debug)]
pub(super) struct AgentStart<'a> {
    pub artefacts: &'a Path,
    pub data_dir: &'a Path,
    pub driver_dir: &'a Path,
    pub url: &'a str,
    /// The single-use token; only the first run needs one.
    pub join_token: Option<&'a str>,
}

/// Where an agent's pid is written, for a run after one that was killed.
fn pid_file(data_dir: &Path) -> PathBuf {
    data_dir.join("agent.pid")
}

/// The agent of a demo that was killed before it could end it; nobody else's.
fn leftover(data_dir: &Path) -> Option<Pid> {
    let pid =
        std::fs::read_to_string(pid_file(data_dir)).ok()?.trim().parse().ok().and_then(Pid::from_raw)?;
    let process = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let line = std::fs::read(process.join("cmdline")).ok()?;
    let words: Vec<&str> =
        line.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok()).collect();
    let place = words.iter().skip_while(|word| **word != "--state-dir").nth(1)?;
    let place = process.join("cwd").canonicalize().ok()?.join(place).canonicalize().ok()?;
    (words.first()?.ends_with("tarn-agent") && place == data_dir.join("agent").canonicalize().ok()?)
        .then_some(pid)
}

impl AgentStart<'_> {
    /// Ends the agent of an earlier run that was killed: two cannot share a directory. Its instances live on.
    pub async fn end_leftover(&self) {
        for _ in 0..STOP_MAX.as_millis() / LOOK_EVERY.as_millis() {
            let Some(pid) = leftover(self.data_dir) else { return };
            let _ended = kill_process(pid, Signal::TERM);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Starts the agent. The token travels in a file of its own, never on the command line.
    pub fn spawn(&self) -> Result<Agent, DemoError> {
        let program = self.artefacts.join("tarn-agent");
        let state_dir = self.data_dir.join("agent");
        let data = |path: &Path| {
            let path = path.to_owned();
            move |source| DemoError::Data { path, source }
        };
        std::fs::create_dir_all(&state_dir).map_err(data(&state_dir))?;
        let log = self.data_dir.join("agent.log");
        let output = std::fs::OpenOptions::new().create(true).append(true).open(&log).map_err(data(&log))?;
        let mut command = Command::new(&program);
        command
            .args(["run", "--server", self.url, "--name", "demo-host", "--report-seconds", "1"])
            .arg("--state-dir")
            .arg(&state_dir)
            .arg("--driver-dir")
            .arg(self.driver_dir)
            .arg("--artefacts")
            .arg(self.artefacts)
            // A simulated card's bytes are moved by this machine's processors.
            .args(["--probe-bytes", "2097152"])
            // Ctrl-C is for the demo, which ends the agent last.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(data(&log))?)
            .stderr(output);
        if let Some(token) = self.join_token {
            let file = self.data_dir.join("join-token");
            std::fs::write(&file, token).map_err(data(&file))?;
            command.arg("--join-token-file").arg(file);
        }
        let child = command.spawn().map_err(|source| DemoError::Start { program, source })?;
        if let Some(pid) = child.id() {
            let file = pid_file(self.data_dir);
            std::fs::write(&file, pid.to_string()).map_err(data(&file))?;
        }
        Ok(Agent { child, log })
    }
}

impl Agent {
    /// Where to look when something takes too long.
    pub fn hint(&self) -> String {
        format!(": see {}", self.log.display())
    }

    /// An error once the agent has ended, which it should not.
    pub fn still_runs(&mut self) -> Result<(), DemoError> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(DemoError::AgentEnded { status, log: self.log.clone() }),
            Ok(None) => Ok(()),
            Err(source) => Err(DemoError::Start { program: self.log.clone(), source }),
        }
    }

    /// Asks the agent to end, and insists after a while. Its instances are its own business: they would live on.
    pub async fn stop(mut self) {
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) {
            // It may have ended by itself, which is as good.
            let _ended = kill_process(pid, Signal::TERM);
        }
        if tokio::time::timeout(STOP_MAX, self.child.wait()).await.is_err() {
            let _ended = self.child.kill().await;
        }
    }
}
