//! Takes instances that are on their way to somewhere one step on: publishes what was requested, places again what failed its
//! proof, times out what makes no progress, calls an operator for ends without proof.

use tarn_protocol::ids::InstanceId;
use tarn_protocol::units::Timestamp;
use tarn_provisioner::lifecycle::State;
use tarn_provisioner::reconcile::{HostView, unreachable_since};
use tarn_store::{StoreError, Tx};

use super::claim::Claim;
use super::{Report, WorkError};
use crate::app::act::Act;
use crate::app::instances::dossier::Dossier;
use crate::app::instances::{apply, place};
use crate::app::metering;
use crate::state::AppState;

/// Instances looked at in one tick.
const INSTANCES_MAX: u32 = 200;

pub async fn tick(state: &AppState, claim: Claim, now: Timestamp) -> Result<Report, WorkError> {
    let due =
        state.store.read(move |tx| Box::pin(async move { tx.instances_in_motion(INSTANCES_MAX).await }));
    let due = due.await?;
    let mut report = Report::default();
    for id in due {
        report.seen += 1;
        match advance(state, claim, &id, now).await {
            Ok(true) => report.changed += 1,
            Ok(false) => {}
            Err(fenced @ WorkError::Fenced { .. }) => return Err(fenced),
            Err(error) => {
                tracing::warn!(instance_id = %id, %error, "an instance could not be reconciled");
                report.failed += 1;
            }
        }
    }
    Ok(report)
}

async fn advance(state: &AppState, claim: Claim, id: &InstanceId, now: Timestamp) -> Result<bool, WorkError> {
    let act = Act::at(state, now);
    let id = id.clone();
    let (changed, act) = state
        .store
        .write(move |tx| {
            let (mut act, id) = (act.clone(), id.clone());
            Box::pin(async move {
                claim.prove(tx).await?;
                let changed = step(tx, &mut act, &id).await?;
                metering::exhaustion::rearm_changed(tx, &mut act).await?;
                Ok::<_, WorkError>((changed, act))
            })
        })
        .await?;
    act.announce(&state.wakeups);
    Ok(changed)
}

async fn step(tx: &mut Tx, act: &mut Act, id: &InstanceId) -> Result<bool, WorkError> {
    let Some(row) = tx.instance_of_any_tenant(id).await? else { return Ok(false) };
    let before = row.row_version;
    let mut dossier = Dossier::load(tx, row).await?;
    let view = view(tx, &dossier, act.now).await?;
    apply::converge(tx, act, &mut dossier, &view, None).await?;
    if dossier.row.state == State::Scheduling && dossier.lease.is_none() {
        place::place_again(tx, act, &mut dossier).await?;
    }
    Ok(dossier.row.row_version != before)
}

/// What is known of the host without a report at hand: whether it is silent, and nothing of what it shows. Absence is never
/// concluded here.
async fn view(tx: &mut Tx, dossier: &Dossier, now: Timestamp) -> Result<HostView, StoreError> {
    let Some(host_id) = &dossier.row.host_id else { return Ok(HostView::default()) };
    let host = tx.host(host_id).await?;
    // Silent before the sweep says so too: after an outage of ours, say.
    let unreachable_since = host.and_then(|host| {
        host.unreachable_since.or_else(|| host.reported_at.and_then(|at| unreachable_since(at, now)))
    });
    Ok(HostView { unreachable_since, ..HostView::default() })
}
