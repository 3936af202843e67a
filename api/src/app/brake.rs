//! The brake on what destroys without being asked: the same for a report, a worker and the sweep of orphans.
//!
//! Who is about to take such a step asks here, in the transaction that takes it. The judgement is the planner's
//! ([`tarn_provisioner::reconcile::judge`]); what it judges by is read at this moment. A step that is taken leaves a row in one of the few
//! slots of its window, so however many replicas act at once, no window has more steps than slots.

use tarn_protocol::ids::{HostId, InstanceId};
use tarn_protocol::units::Timestamp;
use tarn_provisioner::lifecycle::ReasonCode;
use tarn_provisioner::reconcile::{Brakes, judge, window_of};
use tarn_rows::brake::AutomaticStepRow;
use tarn_store::{StoreError, Tx};

/// Open while something is withheld from an instance.
pub const HELD: &str = "breaker_held";

/// What is destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// An instance is given up.
    Fail(ReasonCode),
    /// A workload that is no instance here.
    RemoveOrphan,
    /// A copy of an instance that is over or elsewhere.
    RemoveCopy,
}

impl Step {
    const fn kind(self) -> &'static str {
        match self {
            Self::Fail(reason) => reason.as_str(),
            Self::RemoveOrphan => "remove_orphan",
            Self::RemoveCopy => "remove_copy",
        }
    }
}

/// Takes a slot of this window for `step`, or says that the brake holds.
pub async fn ask(
    tx: &mut Tx,
    now: Timestamp,
    step: Step,
    (host_id, instance_id): (Option<&HostId>, &InstanceId),
) -> Result<Brakes, StoreError> {
    let window_at = window_of(now);
    let health = tx.fleet_health(window_at).await?;
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let taken = u32::try_from(health.steps).unwrap_or(u32::MAX);
    let brakes = judge(count(health.hosts), count(health.hosts_unreachable), taken);
    if brakes == Brakes::Frozen {
        return Ok(brakes);
    }
    let row = AutomaticStepRow {
        window_at,
        slot: health.steps + 1,
        kind: step.kind().to_owned(),
        host_id: host_id.cloned(),
        instance_id: instance_id.clone(),
        taken_at: now,
    };
    // Somebody else was quicker: judged again.
    if !tx.take_automatic_step(&row).await? {
        return Err(tx.stale());
    }
    tx.clear_alert(HELD, instance_id.as_str(), now).await?;
    Ok(Brakes::Free)
}
