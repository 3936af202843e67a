//! The broker of one pool, from outside: started once, found again after an agent restart, asked for figures.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tarn_broker::observer::Observer;
use tarn_protocol::broker_wire::DonorFigures;

use crate::process_mark::{self, ProcessMark};

const POLL: Duration = Duration::from_millis(10);
const READY_WITHIN: Duration = Duration::from_secs(10);
const GONE_WITHIN: Duration = Duration::from_secs(3);
/// Longest path that fits a Unix socket's address.
const SOCKET_PATH_MAX: usize = 107;

/// Where the broker of one pool finds and keeps its things.
#[derive(Debug, Clone)]
pub struct BrokerPlan {
    pub executable: PathBuf,
    pub driver_dir: Option<PathBuf>,
    pub config: PathBuf,
    pub socket: PathBuf,
    pub ledger: PathBuf,
    pub log: PathBuf,
    pub tenant_cgroup: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    #[error("cannot start the broker")]
    Spawn(#[source] std::io::Error),
    #[error("the broker's socket path is {0} bytes long, more than a socket address holds")]
    SocketPath(usize),
    #[error("the broker ended at once: {last_line}")]
    Ended { last_line: String },
    #[error("the broker was not ready in time")]
    Late,
}

impl BrokerPlan {
    /// Brokers of this pool that run, whether or not their pids were ever written down.
    pub fn running(&self) -> Vec<ProcessMark> {
        running_at(&self.socket)
    }

    /// Starts a broker; it belongs to no terminal and to no agent.
    pub fn spawn(&self) -> Result<ProcessMark, BrokerError> {
        let length = self.socket.as_os_str().len();
        if length > SOCKET_PATH_MAX {
            return Err(BrokerError::SocketPath(length));
        }
        let log =
            std::fs::File::options().create(true).append(true).open(&self.log).map_err(BrokerError::Spawn)?;
        let mut command = Command::new(&self.executable);
        command.arg("--config").arg(&self.config).arg("--socket").arg(&self.socket);
        command.arg("--state").arg(&self.ledger);
        if let Some(cgroup) = &self.tenant_cgroup {
            command.arg("--tenant-cgroup").arg(cgroup);
        }
        command.env_clear();
        if let Some(directory) = &self.driver_dir {
            command.arg("--nvml").arg(directory.join("libnvidia-ml.so.1"));
            command.env("LD_LIBRARY_PATH", directory);
        }
        let output = log.try_clone().map_err(BrokerError::Spawn)?;
        command.stdin(Stdio::null()).stdout(output).stderr(log).process_group(0);
        let mut child = command.spawn().map_err(BrokerError::Spawn)?;
        let mark = ProcessMark::of(child.id());
        std::thread::spawn(move || child.wait());
        mark.ok_or_else(|| BrokerError::Ended { last_line: self.last_line() })
    }

    /// Waits until the broker answers.
    pub fn await_ready(&self, broker: &ProcessMark) -> Result<(), BrokerError> {
        let mut waited = Duration::ZERO;
        while waited < READY_WITHIN {
            if Observer::connect(&self.socket).is_ok() {
                return Ok(());
            }
            if !broker.alive() {
                return Err(BrokerError::Ended { last_line: self.last_line() });
            }
            std::thread::sleep(POLL);
            waited += POLL;
        }
        Err(BrokerError::Late)
    }

    /// Ends every broker of this pool; true once none is left.
    pub fn stop(&self) -> bool {
        for signal in [Signal::TERM, Signal::KILL] {
            let mut waited = Duration::ZERO;
            for broker in self.running() {
                broker.signal(signal);
            }
            while waited < GONE_WITHIN {
                if self.running().is_empty() {
                    return true;
                }
                std::thread::sleep(POLL);
                waited += POLL;
            }
        }
        self.running().is_empty()
    }

    fn last_line(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().last().unwrap_or("no word").to_owned()
    }
}

/// Brokers that were started for this socket.
pub fn running_at(socket: &Path) -> Vec<ProcessMark> {
    process_mark::find_by_arguments(&["--socket", &socket.to_string_lossy()])
}

/// The donors' figures, in the order of the pool config; `None` while no broker answers.
pub fn figures(socket: &Path) -> Option<Vec<DonorFigures>> {
    Some(Observer::connect(socket).ok()?.donors())
}
