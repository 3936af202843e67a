//! One simulated machine with its agent process.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use super::{eventually, processes};

/// Where this workspace's programs and libraries are.
pub fn artefacts() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().and_then(Path::parent).unwrap().to_owned()
}

pub fn artefact(name: &str) -> PathBuf {
    let path = artefacts().join(name);
    assert!(path.exists(), "{} is missing: run `make build` first", path.display());
    path
}

/// Everything that the agent started ends when this is dropped, however the test ended.
pub struct Host {
    pub sim: tarn_sim::Host,
    directory: tempfile::TempDir,
    agent: Option<Child>,
}

impl Host {
    pub fn new() -> Self {
        Self::changed(None)
    }

    /// The advertised box with one line of its description replaced by another.
    pub fn changed(line: Option<(&str, &str)>) -> Self {
        static SERIAL: AtomicU32 = AtomicU32::new(1);
        artefact("libtarn_standin_cuda.so");
        artefact("tarn-broker");
        let directory = tempfile::Builder::new().prefix("tarn-real-").tempdir().unwrap();
        let seed = u64::from(SERIAL.fetch_add(1, Ordering::Relaxed)) + u64::from(std::process::id()) * 1000;
        let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../pool-agent/sim/presets/rtx4090-x8-seed.toml");
        let mut text = std::fs::read_to_string(shipped).unwrap();
        if let Some((from, to)) = line {
            assert!(text.contains(from), "{from}");
            text = text.replacen(from, to, 1);
        }
        let preset = directory.path().join("box.toml");
        std::fs::write(&preset, text).unwrap();
        let place = directory.path().join("host");
        let sim = tarn_sim::Host::create(&place, preset.to_str().unwrap(), seed, &artefacts()).unwrap();
        Self { sim, directory, agent: None }
    }

    /// Where on this host a card is, by its UUID.
    pub fn place_of(&self, uuid: &str) -> usize {
        self.sim.gpus().iter().position(|gpu| gpu.uuid == uuid).unwrap()
    }

    pub fn state_dir(&self) -> PathBuf {
        self.directory.path().join("agent")
    }

    pub fn instance_dir(&self, id: &str) -> PathBuf {
        self.state_dir().join("instances").join(id)
    }

    /// Starts the agent; `join_token` the first time only.
    pub fn start_agent(&mut self, url: &str, join_token: Option<&str>, more: &[&str]) {
        let log = self.directory.path().join("agent.log");
        let log = std::fs::File::options().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(artefact("tarn-agent"));
        command.args(["run", "--server", url, "--name", "test-host"]);
        command.arg("--state-dir").arg(self.state_dir()).arg("--driver-dir").arg(self.sim.lib_dir());
        command.args(["--report-seconds", "1", "--usage-interval-ms", "500", "--drain-seconds", "2"]);
        command.args(["--probe-bytes", "2097152"]).args(more);
        match join_token {
            Some(token) => drop(command.env("TARN_JOIN_TOKEN", token)),
            None => drop(command.arg("--no-probe-on-start")),
        }
        self.agent = Some(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    /// SIGKILL; returns once the process is gone.
    pub fn kill_agent(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            agent.kill().unwrap();
            agent.wait().unwrap();
        }
    }

    /// Waits until the agent has died by itself, as at a failpoint.
    pub async fn agent_dies(&mut self) {
        let agent = self.agent.as_mut().unwrap();
        eventually("the agent to reach its failpoint", 30, async || agent.try_wait().unwrap().map(drop))
            .await;
        self.agent = None;
    }

    /// The processes that brokers are, for one instance.
    pub fn brokers(&self, id: &str) -> Vec<u32> {
        processes::with_word(&self.instance_dir(id), "tarn-broker")
    }

    /// What runs in an instance on the tenant's behalf.
    pub fn tenant_processes(&self, id: &str, word: &str) -> Vec<u32> {
        processes::with_word(&self.instance_dir(id), word)
    }

    /// Lines of a file in the tenant's home.
    pub fn home_lines(&self, id: &str, file: &str) -> usize {
        let text = std::fs::read_to_string(self.instance_dir(id).join("home").join(file));
        text.unwrap_or_default().lines().count()
    }

    /// The cards of every pool whose broker is alive.
    pub fn live_pools(&self) -> Vec<BTreeSet<String>> {
        let entries = std::fs::read_dir(self.state_dir().join("instances")).into_iter().flatten().flatten();
        entries
            .filter(|entry| !self.brokers(&entry.file_name().to_string_lossy()).is_empty())
            .filter_map(|entry| {
                let text = std::fs::read(entry.path().join("lib/pool.json")).ok()?;
                let mut cards = BTreeSet::new();
                collect_cards(&serde_json::from_slice(&text).ok()?, &mut cards);
                Some(cards)
            })
            .collect()
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

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("agent.log")).unwrap_or_default()
    }
}

fn collect_cards(value: &Value, cards: &mut BTreeSet<String>) {
    match value {
        Value::String(text) if text.starts_with("GPU-") => drop(cards.insert(text.clone())),
        Value::Array(items) => items.iter().for_each(|item| collect_cards(item, cards)),
        Value::Object(fields) => fields.values().for_each(|field| collect_cards(field, cards)),
        _ => {}
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the agent's log ---\n{}", self.log());
        }
        if let Some(mut agent) = self.agent.take() {
            let _gone = agent.kill();
            let _reaped = agent.wait();
        }
        // What an agent leaves running on purpose, and what that starts before it is killed itself.
        for _ in 0..100 {
            let left = processes::of(self.directory.path());
            if left.is_empty() {
                break;
            }
            left.into_iter().for_each(processes::kill);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
