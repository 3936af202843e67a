//! The journal of one instance: one small file, replaced whole at every change of stage.

use serde::{Deserialize, Serialize};
use tarn_protocol::control::{FailReason, InstanceSpec, Phase, StopReason};
use tarn_protocol::ids::{InstanceId, LeaseId};
use tarn_protocol::units::{BootId, Bytes, Generation, MonoMillis};

use crate::durable_file::{self, DurableError};
use crate::process_mark::ProcessMark;
use crate::state_dir::StateDir;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceRecord {
    pub instance_id: InstanceId,
    /// The generation that `stage` is about; a higher wanted one begins only after this one ended.
    pub generation: Generation,
    pub lease_id: LeaseId,
    pub spec: InstanceSpec,
    /// The boot in which `stage` was reached: processes of another boot are gone.
    pub boot_id: BootId,
    pub pool_bytes: Option<Bytes>,
    /// How often a launch was begun and died before the command itself ran.
    pub launches: u32,
    pub stage: Stage,
}

/// How far the instance is. What runs is named in the variant, so nothing can be running that the stage does not say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "snake_case")]
pub enum Stage {
    /// Nothing of this generation was started.
    Idle,
    /// Links verified, directory and pool config written.
    Prepared,
    /// Intent: a broker may or may not have been started.
    BrokerStarting,
    BrokerUp {
        broker: ProcessMark,
    },
    /// Intent: a process may wait at the gate, to which nobody holds the key any more.
    Launching {
        broker: Option<ProcessMark>,
    },
    /// The process is known; the gate may or may not have been opened.
    Launched {
        broker: Option<ProcessMark>,
        process: ProcessMark,
    },
    Running {
        broker: Option<ProcessMark>,
        process: ProcessMark,
        ready_mono_ms: MonoMillis,
    },
    Stopping {
        broker: Option<ProcessMark>,
        process: ProcessMark,
        outcome: Outcome,
        since: MonoMillis,
        killed: bool,
    },
    /// The process is gone; the broker and the cards' memory have to follow.
    Cleaning {
        broker: Option<ProcessMark>,
        outcome: Outcome,
    },
    Ended {
        outcome: Outcome,
    },
}

/// How a generation ended, or will have when it is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    Stopped { reason: StopReason, exit_code: Option<i32> },
    Failed { reason: FailReason, detail: String, exit_code: Option<i32> },
}

impl Outcome {
    pub fn failed(reason: FailReason, detail: impl Into<String>) -> Self {
        Self::Failed { reason, detail: detail.into(), exit_code: None }
    }

    /// The command ended by itself.
    pub fn of_exit(exit_code: Option<i32>, out_of_memory: bool) -> Self {
        match exit_code {
            Some(0) => Self::Stopped { reason: StopReason::CommandEnded, exit_code },
            _ if out_of_memory => Self::Failed {
                reason: FailReason::OutOfMemory,
                detail: "a process of the instance was killed for memory".to_owned(),
                exit_code,
            },
            Some(code) => Self::Failed {
                reason: FailReason::CommandFailed,
                detail: format!("the command ended with status {code}"),
                exit_code,
            },
            None => Self::Failed {
                reason: FailReason::HostError,
                detail: "the instance's processes vanished".to_owned(),
                exit_code,
            },
        }
    }

    pub fn with_exit(self, exit_code: Option<i32>) -> Self {
        match self {
            Self::Stopped { reason, .. } => Self::Stopped { reason, exit_code },
            Self::Failed { reason, detail, .. } => Self::Failed { reason, detail, exit_code },
        }
    }
}

impl Stage {
    pub fn broker(&self) -> Option<ProcessMark> {
        match self {
            Self::BrokerUp { broker } => Some(*broker),
            Self::Launching { broker }
            | Self::Launched { broker, .. }
            | Self::Running { broker, .. }
            | Self::Stopping { broker, .. }
            | Self::Cleaning { broker, .. } => *broker,
            Self::Idle | Self::Prepared | Self::BrokerStarting | Self::Ended { .. } => None,
        }
    }

    pub fn process(&self) -> Option<ProcessMark> {
        match self {
            Self::Launched { process, .. }
            | Self::Running { process, .. }
            | Self::Stopping { process, .. } => Some(*process),
            _ => None,
        }
    }

    /// What the control plane is told; `trouble` is ours and does not end the instance.
    pub fn phase(&self, trouble: Option<&str>) -> Phase {
        let preparing = |step: &str| Phase::Preparing { step: step.to_owned() };
        match self {
            Self::Idle => preparing("pool_verify"),
            Self::Prepared | Self::BrokerStarting => preparing("broker"),
            Self::BrokerUp { .. } | Self::Launching { .. } | Self::Launched { .. } => preparing("process"),
            Self::Running { ready_mono_ms, .. } => match trouble {
                None => Phase::Running { ready_mono_ms: *ready_mono_ms },
                Some(reason) => Phase::Degraded { ready_mono_ms: *ready_mono_ms, reason: reason.to_owned() },
            },
            Self::Stopping { .. } | Self::Cleaning { .. } => Phase::Stopping,
            Self::Ended { outcome: Outcome::Stopped { reason, exit_code } } => {
                Phase::Stopped { reason: *reason, exit_code: *exit_code }
            }
            Self::Ended { outcome: Outcome::Failed { reason, detail, exit_code } } => {
                Phase::Failed { reason: *reason, detail: detail.clone(), exit_code: *exit_code }
            }
        }
    }
}

impl InstanceRecord {
    pub fn load(state: &StateDir, id: &InstanceId) -> Result<Option<Self>, DurableError> {
        durable_file::read_json(&state.journal(id))
    }

    pub fn save(&self, state: &StateDir) -> Result<(), DurableError> {
        durable_file::replace_json(&state.journal(&self.instance_id), self)
    }
}
