//! Starting what ended, and restarting what runs. Every start is a new generation under a new lease.

use serde_json::json;
use tarn_protocol::ids::{InstanceId, LeaseId};
use tarn_provisioner::lifecycle::{Action, DesiredState, Event, ReasonCode, State};
use tarn_provisioner::reconcile::HostView;
use tarn_rows::instances::InstanceRow;
use tarn_rows::leases::{LeaseGpuRow, LeaseRow};
use tarn_rows::plans::EvictionRow;
use tarn_rows::{Json, TenantScope};
use tarn_store::{StoreError, Tx};

use super::change::{ChangeRefused, refuses};
use super::claim::{self, Admission, ClaimError, StartRefused};
use super::dossier::Dossier;
use super::{apply, change, wanted};
use crate::app::act::Act;
use crate::app::metering::storage;
use crate::app::metering::stored::corrupt;
use crate::app::offers::shape::Wanted;

#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    #[error(transparent)]
    Change(#[from] ChangeRefused),
    #[error(transparent)]
    Start(#[from] StartRefused),
    #[error("its host has not proven yet that the last run is over")]
    StillHeld,
}

/// Starts a stopped or failed instance on a set that fits now. Constraints are checked again.
pub async fn start(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    id: &InstanceId,
) -> Result<Result<InstanceRow, NotStarted>, ClaimError> {
    let Some(row) = tx.instance(scope, id).await? else { return Ok(Err(ChangeRefused::NotFound.into())) };
    if let Some(refused) = refuses(row.state, Action::Start) {
        return Ok(Err(refused.into()));
    }
    let mut dossier = Dossier::load(tx, row).await?;
    if dossier.lease.is_some() {
        return Ok(Err(NotStarted::StillHeld));
    }
    let admission = match check_near_disk(tx, act, &dossier).await? {
        Ok(admission) => admission,
        Err(refused) => return Ok(Err(refused.into())),
    };
    begin_generation(tx, act, &mut dossier, &admission.placed.host_id).await?;
    claim::take(tx, act, &mut dossier, &admission).await?;
    started(tx, act, &mut dossier).await?;
    Ok(Ok(dossier.row))
}

/// On the host that has its disk if that can be; elsewhere, where it begins with an empty one, only if nothing is charged for it.
async fn check_near_disk(
    tx: &mut Tx,
    act: &Act,
    dossier: &Dossier,
) -> Result<Result<Admission, StartRefused>, ClaimError> {
    let anywhere = wanted(&dossier.row.spec.0, Vec::new());
    let here =
        Wanted { host_id: dossier.row.host_id.clone().or(anywhere.host_id.clone()), ..anywhere.clone() };
    let near = claim::check(tx, act, dossier, &here).await?;
    let full = matches!(near, Err(StartRefused::NoCapacity { .. })) && here != anywhere;
    if full && !storage::charged(tx, &dossier.scope(), &dossier.row).await? {
        return claim::check(tx, act, dossier, &anywhere).await;
    }
    Ok(near)
}

/// Ends the run and begins the next on the same cards, which stay the instance's own throughout. The host's fence keeps the old
/// run from touching the new one.
pub async fn restart(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    id: &InstanceId,
) -> Result<Result<InstanceRow, NotStarted>, StoreError> {
    let Some(row) = tx.instance(scope, id).await? else { return Ok(Err(ChangeRefused::NotFound.into())) };
    if let Some(refused) = refuses(row.state, Action::Restart) {
        return Ok(Err(refused.into()));
    }
    let mut dossier = Dossier::load(tx, row).await?;
    change::wish(tx, act, &mut dossier, DesiredState::Stopped, ReasonCode::UserRequest).await?;
    let Some((lease, cards)) = dossier.lease.clone() else { return Err(tx.stale()) };
    tx.release_lease(scope, &lease.id, lease.generation, act.now).await?;
    let host_id = lease.host_id.clone();
    begin_generation(tx, act, &mut dossier, &host_id).await?;
    let again = LeaseRow {
        id: LeaseId::new(act.now, act.bits()),
        generation: dossier.row.generation,
        created_at: act.now,
        ..lease
    };
    let cards: Vec<LeaseGpuRow> =
        cards.into_iter().map(|card| LeaseGpuRow { lease_id: again.id.clone(), ..card }).collect();
    tx.insert_lease(scope, &again, &cards).await?;
    dossier.lease = Some((again, cards));
    dossier.row.state = State::Stopped;
    started(tx, act, &mut dossier).await?;
    Ok(Ok(dossier.row))
}

/// The next generation, on `host`: nothing is known of it yet, and a copy elsewhere must go.
pub async fn begin_generation(
    tx: &mut Tx,
    act: &mut Act,
    dossier: &mut Dossier,
    host: &tarn_protocol::ids::HostId,
) -> Result<(), StoreError> {
    let left = dossier.row.generation;
    if let Some(old) = dossier.row.host_id.replace(host.clone()).filter(|old| old != host) {
        evict(tx, act, dossier, &old, left).await?;
    }
    // Back on a host that was to let it go.
    tx.finish_eviction(host, &dossier.row.id).await?;
    dossier.row.generation = left.next();
    tx.forget_observation(&dossier.scope(), &dossier.row.id).await?;
    Ok(())
}

async fn evict(
    tx: &mut Tx,
    act: &mut Act,
    dossier: &Dossier,
    host: &tarn_protocol::ids::HostId,
    generation: tarn_protocol::units::Generation,
) -> Result<(), StoreError> {
    let eviction = EvictionRow {
        host_id: host.clone(),
        instance_id: dossier.row.id.clone(),
        generation,
        created_at: act.now,
    };
    if tx.order_eviction(&eviction).await? {
        tx.bump_desired_revision(host).await?;
        act.changed_desired(host);
    }
    Ok(())
}

async fn started(tx: &mut Tx, act: &mut Act, dossier: &mut Dossier) -> Result<(), StoreError> {
    let from = dossier.row.state;
    let to = from.after(Event::Start).map_err(corrupt)?;
    dossier.row.desired_state = DesiredState::Running;
    dossier.row.desired_reason = ReasonCode::UserRequest;
    dossier.row.desired_since = act.now;
    dossier.row.state = to;
    dossier.row.state_since = act.now;
    dossier.row.reason_code = None;
    dossier.row.reason_detail = None;
    dossier.row.placement_attempts = 1;
    dossier.plan.failed_sets = Json(Vec::new());
    dossier.plan.progress_at = act.now;
    let detail = json!({"from": from, "to": to, "generation": dossier.row.generation});
    apply::record(tx, act, dossier, "instance.starting", detail).await?;
    act.changed_instance(&dossier.row.id);
    apply::converge(tx, act, dossier, &HostView::default(), None).await
}
