//! Workloads that a host shows and that are no instance here: of a restored database, of another control plane, or worse.
//!
//! One is noted at first sight and an operator is called. If nobody has put it right for [`ORPHAN_GRACE_SECONDS`], its removal is ordered,
//! under the brake and with a line in the operators' log, and published as a goal until the host shows it no longer. What has an instance
//! row is never removed here, whatever was noted before.

use serde_json::json;
use tarn_protocol::control::{DesiredInstance, Goal, InstanceSpec, ObservedInstance};
use tarn_protocol::ids::{EventId, GpuUuid, HostId, InstanceId, LeaseId};
use tarn_provisioner::reconcile::{Brakes, ORPHAN_GRACE_SECONDS, OrphanRecord, Remedy, orphan_remedy};
use tarn_rows::Json;
use tarn_rows::alerts::AlertRow;
use tarn_rows::plans::OrphanRow;
use tarn_store::{StoreError, Tx};

use crate::app::act::Act;
use crate::app::brake::{self, Step};
use crate::app::operators::log::{self, By, Deed};

const ORPHAN: &str = "orphan";
/// Removals that are looked at in one tick.
const REMOVALS_MAX: u32 = 100;

/// The host shows it now; since when is kept.
pub async fn note(tx: &mut Tx, act: &Act, host: &HostId, seen: &ObservedInstance) -> Result<(), StoreError> {
    let known = tx.orphan(host, &seen.instance_id).await?;
    if known.as_ref().is_none_or(|known| known.generation < seen.generation) {
        let orphan = OrphanRow {
            host_id: host.clone(),
            instance_id: seen.instance_id.clone(),
            generation: seen.generation,
            first_seen_at: act.now,
            removal_ordered_at: None,
        };
        tx.see_orphan(&orphan).await?;
    }
    call_an_operator(tx, act, host, seen).await
}

/// One open alert for each workload, however often it is shown.
pub async fn call_an_operator(
    tx: &mut Tx,
    act: &Act,
    host: &HostId,
    seen: &ObservedInstance,
) -> Result<(), StoreError> {
    let alert = AlertRow {
        id: EventId::new(act.now, act.bits()),
        kind: ORPHAN.to_owned(),
        subject: seen.instance_id.to_string(),
        detail: Json(json!({"host_id": host, "generation": seen.generation})),
        created_at: act.now,
        cleared_at: None,
    };
    tx.open_alert(&alert).await.map(drop)
}

/// A fresh report that does not show it is the proof that it is gone.
pub async fn forget_gone(
    tx: &mut Tx,
    act: &Act,
    host: &HostId,
    shown: impl Fn(&InstanceId) -> bool,
) -> Result<(), StoreError> {
    for orphan in tx.orphans_of_host(host).await? {
        if !shown(&orphan.instance_id) {
            tx.forget_orphan(host, &orphan.instance_id).await?;
            tx.clear_alert(ORPHAN, orphan.instance_id.as_str(), act.now).await?;
        }
    }
    Ok(())
}

/// Orders the removal of what was kept for long enough; how many were looked at, and how many ordered.
pub async fn remove_kept(tx: &mut Tx, act: &mut Act) -> Result<(u32, u32), StoreError> {
    let before = act.now.plus_seconds(-ORPHAN_GRACE_SECONDS);
    let (mut looked, mut ordered) = (0, 0);
    for orphan in tx.orphans_kept_since(before, REMOVALS_MAX).await? {
        looked += 1;
        ordered += u32::from(remove(tx, act, &orphan).await?);
    }
    Ok((looked, ordered))
}

async fn remove(tx: &mut Tx, act: &mut Act, orphan: &OrphanRow) -> Result<bool, StoreError> {
    let (host, id) = (&orphan.host_id, &orphan.instance_id);
    if tx.instance_of_any_tenant(id).await?.is_some() {
        tx.forget_orphan(host, id).await?;
        return Ok(false);
    }
    let record = OrphanRecord::Unknown { first_seen_at: orphan.first_seen_at };
    let remedy = orphan_remedy(&record, host, orphan.generation, Brakes::Free, act.now);
    let due = remedy == Remedy::Remove;
    if !due || brake::ask(tx, act.now, Step::RemoveOrphan, (Some(host), id)).await? == Brakes::Frozen {
        return Ok(false);
    }
    if !tx.order_removal(host, id, act.now).await? {
        return Err(tx.stale());
    }
    tx.bump_desired_revision(host).await?;
    act.changed_desired(host);
    let detail = json!({
        "host_id": host, "generation": orphan.generation, "first_seen_at": orphan.first_seen_at.as_micros(),
    });
    log::record(tx, &By::worker(), act.now, Deed::RemoveOrphan, (id, detail)).await?;
    tracing::warn!(instance_id = %id, host_id = %host, "a workload that is no instance here is removed");
    Ok(true)
}

/// The goals of a host for what it is to let go.
pub async fn wanted(tx: &mut Tx, host: &HostId) -> Result<Vec<DesiredInstance>, StoreError> {
    let mut goals = Vec::new();
    for orphan in tx.orphans_of_host(host).await? {
        let Some(ordered_at) = orphan.removal_ordered_at else { continue };
        // Restored meanwhile, from a newer copy of the data.
        if tx.instance_of_any_tenant(&orphan.instance_id).await?.is_some() {
            continue;
        }
        goals.push(DesiredInstance {
            lease_id: LeaseId::new(ordered_at, 0),
            generation: orphan.generation,
            goal: Goal::Absent,
            spec: nothing(),
            run_until: None,
            instance_id: orphan.instance_id,
        });
    }
    Ok(goals)
}

/// What is not to run has neither command nor cards; what it had is in the host's own journal.
fn nothing() -> InstanceSpec {
    InstanceSpec {
        command: Vec::new(),
        env: Vec::new(),
        ssh_public_keys: Vec::new(),
        primary: GpuUuid::from_bytes([0; 16]),
        donors: Vec::new(),
        policy: tarn_protocol::pool_config::Policy::default(),
        cap_bytes: None,
    }
}
