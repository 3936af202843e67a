//! What runs a tenant's command. The seam: plain processes here ([`process`]); containers later, behind the same calls.
//!
//! A runtime starts a command *at a gate*: the process exists and can be written down, but nothing of the tenant runs until the
//! gate opens. When the agent dies in between, the gate falls shut for ever and the waiting process ends by itself.

pub mod capabilities;
pub mod cgroup;
pub mod enter;
pub mod inner;
pub mod loader_cache;
pub mod mounts;
pub mod outer;
pub mod output_file;
pub mod process;
pub mod run_dir;

use std::io::Write;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tarn_protocol::ids::InstanceId;
use tarn_protocol::units::Generation;

use crate::durable_file::DurableError;
use crate::instance::planner::ProcessFact;
use crate::process_mark::ProcessMark;

/// Everything a runtime needs to know to start one command; stored, because entering and ending it later need it too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchPlan {
    pub instance_id: InstanceId,
    pub generation: Generation,
    pub command: Vec<String>,
    /// The whole environment: nothing is inherited.
    pub env: Vec<(String, String)>,
    /// The instance's directory, the only part of the agent's state it sees.
    pub directory: PathBuf,
    pub home: PathBuf,
    pub log: PathBuf,
    /// Covered by an empty directory, except for `directory`.
    pub hidden: PathBuf,
    /// Device nodes that cannot be opened inside.
    pub masked: Vec<PathBuf>,
    /// Files that are seen in place of others: `(source, target)`.
    pub overlays: Vec<(PathBuf, PathBuf)>,
    /// Directories of cgroups to be in; empty where none can be made.
    pub cgroups: Vec<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error("cannot start the instance's process")]
    Spawn(#[source] std::io::Error),
    #[error("the instance's process ended at once")]
    Vanished,
    #[error("cannot enter instance {0}: it is not running")]
    NotRunning(InstanceId),
    #[error("cannot enter the instance's namespaces")]
    Enter(#[source] std::io::Error),
    #[error(transparent)]
    Durable(#[from] DurableError),
}

/// A process that waits; dropping the gate unopened ends it.
#[derive(Debug)]
pub struct Gated {
    pub process: ProcessMark,
    gate: std::process::ChildStdin,
}

impl Gated {
    pub fn open(mut self) -> Result<(), RuntimeError> {
        self.gate.write_all(&[outer::OPEN]).map_err(RuntimeError::Spawn)
    }
}

/// How hard to ask for the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    Ask,
    Kill,
}

pub trait Runtime: Send + Sync + std::fmt::Debug {
    fn start(&self, plan: &LaunchPlan) -> Result<Gated, RuntimeError>;
    /// What became of `process`, started for `generation`.
    fn inspect(&self, id: &InstanceId, generation: Generation, process: &ProcessMark) -> ProcessFact;
    /// Milestones that the runtime wrote down by itself.
    fn milestones(&self, id: &InstanceId, generation: Generation) -> run_dir::Milestones;
    /// The process that stands for an instance, and its generation, when no journal tells.
    fn find(&self, id: &InstanceId) -> Option<(Generation, ProcessMark)>;
    /// Signals everything that the instance started.
    fn stop(&self, id: &InstanceId, process: Option<&ProcessMark>, force: Force);
    /// Pids of everything that the instance runs.
    fn members(&self, id: &InstanceId, process: Option<&ProcessMark>) -> Vec<u32>;
    /// Makes the cgroups in which the instance's processes will be counted; none where the host allows none.
    fn make_cgroups(&self, id: &InstanceId) -> Vec<PathBuf>;
    /// How `/proc/<pid>/cgroup` names them.
    fn cgroup_name(&self, id: &InstanceId) -> PathBuf;
    /// Ends whatever may be left of an instance, known or not, and forgets it.
    fn remove(&self, id: &InstanceId) -> Result<(), RuntimeError>;
}
