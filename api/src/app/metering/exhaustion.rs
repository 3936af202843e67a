//! Exhaustion: until when a tenant's running instances are paid, told to the hosts, and enforced here at that very instant.

use tarn_billing::exhaustion::{HORIZON_SECONDS, Runway, forecast};
use tarn_billing::segment::SegmentState;
use tarn_protocol::control::RunUntil;
use tarn_protocol::units::Timestamp;
use tarn_provisioner::lifecycle::{DesiredState, ReasonCode};
use tarn_provisioner::reconcile::HostView;
use tarn_rows::TenantScope;
use tarn_rows::segments::SegmentRow;
use tarn_rows::storage::StorageSegmentRow;
use tarn_store::{StoreError, Tx};

use super::purse::{CorruptMoney, Purse};
use super::{segments, storage};
use crate::app::act::{Act, EXHAUST};
use crate::app::instances::apply;
use crate::app::instances::dossier::Dossier;
use crate::app::metering::stored::corrupt;

/// Computes the runway again and tells the hosts what changed.
pub async fn rearm(tx: &mut Tx, act: &mut Act, scope: &TenantScope) -> Result<(), CorruptMoney> {
    let mut purse = Purse::load(tx, scope, act.now).await?;
    if storage::resume(tx, act, scope, &purse).await? {
        purse = Purse::load(tx, scope, act.now).await?;
    }
    let until = match forecast(purse.costing(), &purse.book, &purse.funds, act.now)? {
        Runway::Until(until) => until,
        Runway::Unlimited => act.now.plus_seconds(HORIZON_SECONDS),
    };
    for (row, segment) in &purse.disks {
        if segment.state() == SegmentState::Open && !noted(row, until, act.now) {
            let row = StorageSegmentRow { exhausts_at: Some(until), updated_at: act.now, ..row.clone() };
            storage::save(tx, scope, row).await?;
        }
    }
    let open = purse.segments.into_iter().filter(|(_, segment)| segment.state() == SegmentState::Open);
    for (row, segment) in open {
        let run_until = segment.run_until(until);
        if told(&row, &run_until, until, act.now) {
            continue;
        }
        let instance = tx.instance(scope, &row.instance_id).await?;
        let row = SegmentRow {
            run_until_mono_ms: Some(run_until.mono_ms),
            exhausts_at: Some(until),
            updated_at: act.now,
            ..row
        };
        segments::save(tx, scope, row).await?;
        if let Some(host_id) = instance.and_then(|instance| instance.host_id) {
            tx.bump_desired_revision(&host_id).await?;
            act.changed_desired(&host_id);
        }
    }
    act.woke(EXHAUST);
    Ok(())
}

/// Whether a disk's end is noted well enough to be looked at in time: whoever looks computes it again.
fn noted(row: &StorageSegmentRow, until: Timestamp, now: Timestamp) -> bool {
    let endless = now.plus_seconds(HORIZON_SECONDS / 2);
    row.exhausts_at.is_some_and(|known| {
        known.micros_since(until).abs() < 1_000_000 || (until > endless && known > endless)
    })
}

/// Whether the host knows this already. Instants differ by the fraction of a millisecond at which they were computed, what the host
/// enforces does not; and a runway without an end moves with the clock, which is no change.
fn told(row: &SegmentRow, run_until: &RunUntil, until: Timestamp, now: Timestamp) -> bool {
    let endless = now.plus_seconds(HORIZON_SECONDS / 2);
    row.run_until_mono_ms == Some(run_until.mono_ms)
        || (until > endless && row.exhausts_at.is_some_and(|known| known > endless))
}

/// Stops everything of a tenant that runs, its money having ended at `until`: charging ends there, whatever the clock says by now.
pub async fn stop_all(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    until: Timestamp,
) -> Result<u32, CorruptMoney> {
    let purse = Purse::load(tx, scope, act.now).await?;
    let mut stopped = storage::close_exhausted(tx, scope, &purse, until, act.now).await?;
    for row in tx.open_segments_of_tenant(scope).await? {
        let Some(instance) = tx.instance(scope, &row.instance_id).await? else { continue };
        let mut dossier = Dossier::load(tx, instance).await?;
        if dossier.row.desired_state == DesiredState::Running {
            dossier.row.desired_state = DesiredState::Stopped;
            dossier.row.desired_reason = ReasonCode::BalanceExhausted;
            dossier.row.desired_since = until;
        }
        apply::converge(tx, act, &mut dossier, &HostView::default(), None).await?;
        stopped += 1;
    }
    Ok(stopped)
}

/// Before a commit: the runway of every tenant whose burn the transaction changed.
pub async fn rearm_changed(tx: &mut Tx, act: &mut Act) -> Result<(), StoreError> {
    for tenant_id in std::mem::take(&mut act.rearm) {
        rearm(tx, act, &TenantScope::proven(tenant_id)).await.map_err(corrupt)?;
    }
    Ok(())
}
