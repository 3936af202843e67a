//! What the host showed of an instance's current generation.

use tarn_protocol::control::Phase;
use tarn_protocol::units::MonoMillis;

use super::ReasonCode;

/// The step of [`Phase::Preparing`] from which the tenant's command is being launched.
const STEP_PROCESS: &str = "process";

/// Everything that a host can have shown. `Stopped` and `Failed` are final within a generation: nothing of the instance runs,
/// its pool is gone, and the agent starts it again only for a higher generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Observed {
    /// No report that could know of the current goal.
    Unknown,
    /// A report made after the host learned the current goal, without the instance.
    Absent,
    Preparing,
    /// The tenant's command is being launched.
    Launching,
    Running {
        ready_mono_ms: MonoMillis,
    },
    Degraded {
        ready_mono_ms: MonoMillis,
        reason: ReasonCode,
    },
    Stopping,
    Stopped {
        reason: ReasonCode,
    },
    Failed {
        reason: ReasonCode,
    },
}

impl Observed {
    /// Whether this proves that nothing of the generation uses the cards any more.
    pub const fn quiet(self) -> bool {
        matches!(self, Self::Absent | Self::Stopped { .. } | Self::Failed { .. })
    }
}

impl From<&Phase> for Observed {
    fn from(phase: &Phase) -> Self {
        match phase {
            Phase::Preparing { step } if step == STEP_PROCESS => Self::Launching,
            Phase::Preparing { .. } => Self::Preparing,
            Phase::Running { ready_mono_ms } => Self::Running { ready_mono_ms: *ready_mono_ms },
            Phase::Degraded { ready_mono_ms, reason } => {
                Self::Degraded { ready_mono_ms: *ready_mono_ms, reason: ReasonCode::of_degradation(reason) }
            }
            Phase::Stopping => Self::Stopping,
            Phase::Stopped { reason, .. } => Self::Stopped { reason: (*reason).into() },
            Phase::Failed { reason, .. } => Self::Failed { reason: (*reason).into() },
        }
    }
}
