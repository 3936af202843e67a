//! What the planner reads: an instance as recorded and its host as last heard of.

use std::collections::BTreeSet;

use tarn_protocol::control::{Goal, ObservedInstance};
use tarn_protocol::ids::{GpuUuid, InstanceId};
use tarn_protocol::units::{BootId, Generation, Timestamp};

use super::effect::Ignored;
use crate::lease::{Claim, Fence, fence};
use crate::lifecycle::{Observed, ReasonCode, State, Wish};

/// One instance as the store has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub id: InstanceId,
    pub state: State,
    pub reason: Option<ReasonCode>,
    /// Grows with every lease.
    pub generation: Generation,
    pub wish: Wish,
    /// The live lease.
    pub claim: Option<Claim>,
    /// What the host was last told.
    pub published: Option<Published>,
    /// The boot under which the open billing segment began; `None` when none is open.
    pub segment_boot: Option<BootId>,
    /// Sets of cards tried since the last start, the current one included.
    pub placement_attempts: u32,
    /// Sets that failed since the last start.
    pub failed_sets: Vec<BTreeSet<GpuUuid>>,
    /// Last sign of progress while not yet ready: the state's start, a new step, more bytes pulled.
    pub progress_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    pub generation: Generation,
    pub goal: Goal,
    /// Revision of the host's desired document that first carried this goal.
    pub revision: i64,
}

/// The instance's host, from the newest accepted report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostView {
    pub unreachable_since: Option<Timestamp>,
    pub boot_id: Option<BootId>,
    /// The desired revision that report was made under.
    pub desired_revision: Option<i64>,
    /// This instance in that report; `None` when the report did not list it.
    pub sighting: Option<Sighting>,
}

/// An instance as a report shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sighting {
    pub generation: Generation,
    pub observed: Observed,
}

impl Sighting {
    /// Whether the planner sees the instance before the usage of the same report is counted: the first ready evidence opens the
    /// segment that the usage counts on. All others come after it, because they may end at their last evidence.
    pub const fn precedes_usage(&self) -> bool {
        matches!(self.observed, Observed::Running { .. })
    }
}

impl From<&ObservedInstance> for Sighting {
    fn from(seen: &ObservedInstance) -> Self {
        Self { generation: seen.generation, observed: (&seen.phase).into() }
    }
}

impl Instance {
    /// What the host's newest report says of the current generation, and what in it had to be ignored.
    pub(super) fn observed(&self, host: &HostView) -> (Observed, Option<Ignored>) {
        let told = self.published.filter(|published| published.generation == self.generation);
        match (host.sighting, told) {
            (Some(sighting), _) => match fence(self.generation, sighting.generation) {
                Fence::Current => (sighting.observed, None),
                Fence::Stale => {
                    let (seen, current) = (sighting.generation, self.generation);
                    // A host that was never told of this generation has nothing of it.
                    let observed = if told.is_none() { Observed::Absent } else { Observed::Unknown };
                    (observed, Some(Ignored::StaleGeneration { seen, current }))
                }
                Fence::Ahead => {
                    let (seen, current) = (sighting.generation, self.generation);
                    (Observed::Unknown, Some(Ignored::GenerationAhead { seen, current }))
                }
            },
            (None, None) => (Observed::Absent, None),
            (None, Some(told)) => {
                let knows = host.desired_revision.is_some_and(|revision| revision >= told.revision);
                (if knows { Observed::Absent } else { Observed::Unknown }, None)
            }
        }
    }

    /// The cards of the current lease.
    pub(super) fn cards(&self) -> BTreeSet<GpuUuid> {
        self.claim.iter().flat_map(|claim| claim.cards().cloned()).collect()
    }
}
