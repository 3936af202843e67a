//! What a plan asks its caller to do, in order, in one transaction.

use std::collections::BTreeSet;

use tarn_protocol::control::Goal;
use tarn_protocol::ids::{GpuUuid, InstanceId, LeaseId};
use tarn_protocol::units::{BootId, Generation, MonoMillis, Timestamp};

use crate::lifecycle::{DesiredState, ReasonCode, State};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Record the transition, as an event of the instance too. `reason` replaces the recorded one; `None` clears it.
    SetState {
        from: State,
        to: State,
        reason: Option<ReasonCode>,
    },
    /// The instance ended by itself: stop wanting it to run.
    SetDesired {
        state: DesiredState,
        reason: ReasonCode,
    },
    /// Put this goal into the host's desired document under a new revision.
    PublishDesired {
        generation: Generation,
        goal: Goal,
    },
    OpenSegment {
        primary: GpuUuid,
        boot_id: BootId,
        ready_mono_ms: MonoMillis,
        /// It did not work meanwhile, for a reason of ours: bills from the report that shows it well, not from its first readiness.
        resumed: bool,
    },
    CloseSegment {
        at: CloseAt,
        reason: ReasonCode,
    },
    /// Only this lease at this generation.
    ReleaseLease {
        lease_id: LeaseId,
        generation: Generation,
    },
    /// Place again, count the attempt, and lease under the next generation; when refused, apply
    /// [`placement_refused`](super::placement_refused).
    Place {
        exclude: Vec<BTreeSet<GpuUuid>>,
    },
    RaiseAlert(Alert),
}

/// Where charging ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseAt {
    /// When the stop or termination was accepted.
    Accepted(Timestamp),
    /// At the end of the last usage evidence.
    LastEvidence,
}

/// What an operator should know. One open alert per kind and subject is enough: raising it again changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alert {
    /// Stopping or terminating for long without the host's proof.
    Unproven { since: Timestamp },
    /// The host shows a generation that was never given out: our record is older than the world.
    GenerationAhead { seen: Generation, current: Generation },
    /// A destructive step was withheld because too many hosts are lost at once.
    BreakerHeld { reason: ReasonCode },
}

impl Alert {
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Unproven { .. } => "termination_unproven",
            Self::GenerationAhead { .. } => "generation_ahead",
            Self::BreakerHeld { .. } => "breaker_held",
        }
    }
}

/// What a report said that must not be acted upon; worth a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    StaleGeneration { seen: Generation, current: Generation },
    GenerationAhead { seen: Generation, current: Generation },
}

/// Whether an instance that fails for this reason may well be alive: only we say so.
pub(super) const fn unasked(reason: ReasonCode) -> bool {
    matches!(reason, ReasonCode::HostLost | ReasonCode::ProvisioningTimeout)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub instance_id: InstanceId,
    pub effects: Vec<Effect>,
    pub ignored: Option<Ignored>,
}

impl Plan {
    /// Nothing to do.
    pub fn settled(&self) -> bool {
        self.effects.is_empty()
    }

    /// Why it takes a step that nobody asked for and that cannot be undone, if it does: what the brake withholds.
    pub fn destroys(&self) -> Option<ReasonCode> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::SetState { to: State::Failed, reason: Some(reason), .. } if unasked(*reason) => {
                Some(*reason)
            }
            _ => None,
        })
    }
}
