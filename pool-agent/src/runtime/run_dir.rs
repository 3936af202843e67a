//! What the processes of an instance write down for an agent that may not be there: that the command began, and how it ended.
//!
//! It lies outside the instance's own directory, where the tenant can neither see nor forge it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tarn_protocol::ids::InstanceId;
use tarn_protocol::units::{Generation, MonoMillis};

use super::LaunchPlan;
use crate::durable_file::{self, DurableError};

#[derive(Debug, Clone)]
pub struct RunDir {
    path: PathBuf,
}

/// Written just before the command runs: from then on this generation has been started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub generation: Generation,
    pub mono_ms: MonoMillis,
    /// Host pid of the instance's first process.
    pub note: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub generation: Generation,
    pub mono_ms: MonoMillis,
    /// 128 and the signal for a killed command.
    pub exit_code: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Milestones {
    pub started: Option<Started>,
    pub ended: Option<Ended>,
    /// Why the command could not be run.
    pub setup_error: Option<String>,
}

impl RunDir {
    pub fn of(state_root: &Path, id: &InstanceId) -> Self {
        Self { path: state_root.join("run").join(id.as_str()) }
    }

    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Forgets every earlier launch and writes down the new plan.
    pub fn begin(&self, plan: &LaunchPlan) -> Result<(), DurableError> {
        std::fs::create_dir_all(&self.path).map_err(|source| DurableError::write(&self.path, source))?;
        for name in ["started", "ended", "setup_error", "inner"] {
            durable_file::remove(&self.path.join(name))?;
        }
        durable_file::replace_json(&self.path.join("plan"), plan)
    }

    pub fn plan(&self) -> Result<Option<LaunchPlan>, DurableError> {
        durable_file::read_json(&self.path.join("plan"))
    }

    pub fn milestones(&self, generation: Generation) -> Milestones {
        // A file that is not whole yet is a milestone not reached yet.
        let started: Option<Started> = durable_file::read_json(&self.path.join("started")).ok().flatten();
        let ended: Option<Ended> = durable_file::read_json(&self.path.join("ended")).ok().flatten();
        let error = std::fs::read_to_string(self.path.join("setup_error")).unwrap_or_default();
        Milestones {
            started: started.filter(|started| started.generation == generation),
            ended: ended.filter(|ended| ended.generation == generation),
            setup_error: (!error.is_empty()).then_some(error),
        }
    }

    pub fn ended(&self, ended: &Ended) -> Result<(), DurableError> {
        durable_file::replace_json(&self.path.join("ended"), ended)
    }

    /// Host pid of the instance's first process.
    pub fn inner(&self) -> Option<u32> {
        durable_file::read_json(&self.path.join("inner")).ok().flatten()
    }

    pub fn set_inner(&self, pid: u32) -> Result<(), DurableError> {
        durable_file::replace_json(&self.path.join("inner"), &pid)
    }

    /// Opened before the agent's state is hidden from the instance, written after.
    pub fn open_witness(&self) -> std::io::Result<Witness> {
        Ok(Witness {
            started: File::create(self.path.join("started"))?,
            setup_error: File::create(self.path.join("setup_error"))?,
        })
    }

    pub fn remove(&self) -> std::io::Result<()> {
        match std::fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The open files through which the instance's first process leaves its word.
#[derive(Debug)]
pub struct Witness {
    started: File,
    setup_error: File,
}

impl Witness {
    pub fn started(&mut self, started: &Started) -> std::io::Result<()> {
        self.started.write_all(&serde_json::to_vec(started)?)?;
        self.started.sync_all()
    }

    pub fn failed(&mut self, text: &str) {
        // The exit code still says that it failed when the reason cannot be kept.
        let _unwritten =
            self.setup_error.write_all(text.as_bytes()).and_then(|()| self.setup_error.sync_all());
    }
}
