//! Exhaustion: until when a tenant's running instances are paid and within its spend caps, told to the hosts, and enforced here at that
//! very instant.

use serde_json::json;
use tarn_billing::exhaustion::{HORIZON_SECONDS, Runway, forecast};
use tarn_billing::money::Micros;
use tarn_billing::rate::hourly_burn;
use tarn_billing::segment::{CloseReason, SegmentState};
use tarn_protocol::control::RunUntil;
use tarn_protocol::ids::InstanceId;
use tarn_protocol::units::Timestamp;
use tarn_provisioner::lifecycle::{DesiredState, ReasonCode};
use tarn_provisioner::reconcile::HostView;
use tarn_rows::TenantScope;
use tarn_rows::segments::SegmentRow;
use tarn_rows::storage::StorageSegmentRow;
use tarn_store::{StoreError, Tx};

use super::caps::{self, Limit, Limits};
use super::purse::{CorruptMoney, Purse};
use super::{segments, storage};
use crate::app::act::{Act, EXHAUST};
use crate::app::instances::apply;
use crate::app::instances::dossier::Dossier;
use crate::app::metering::stored::corrupt;
use crate::app::money::notices::{self, NoticeKind};

/// How far the instant at which a host ends something by itself may be from the one that is computed when it says so.
const SLACK_SECONDS: i64 = 5;

/// Computes the runway again, tells the hosts what changed and the customer what was crossed.
pub async fn rearm(tx: &mut Tx, act: &mut Act, scope: &TenantScope) -> Result<(), CorruptMoney> {
    let purse = Purse::load(tx, scope, act.now).await?;
    rearm_with(tx, act, scope, purse).await
}

/// The same with the tenant's money as it is in this transaction.
pub async fn rearm_with(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    mut purse: Purse,
) -> Result<(), CorruptMoney> {
    if storage::resume(tx, act, scope, &purse).await? {
        purse = Purse::load(tx, scope, act.now).await?;
    }
    let runway = forecast(purse.costing(), &purse.book, &purse.funds, act.now)?;
    let limits = Limits::load(tx, scope, &purse, act.now).await?;
    let burn = hourly_burn(purse.burning())?;
    if burn > Micros::ZERO {
        notices::runway(tx, act, scope, runway, burn).await?;
    }
    let paid_until = match runway {
        Runway::Until(until) => until,
        Runway::Unlimited => act.now.plus_seconds(HORIZON_SECONDS),
    };
    for (row, segment) in &purse.disks {
        if segment.state() == SegmentState::Open && !noted(row, paid_until, act.now) {
            let row = StorageSegmentRow {
                exhausts_at: Some(paid_until),
                updated_at: row.updated_at.max(act.now),
                ..row.clone()
            };
            storage::save(tx, scope, row).await?;
        }
    }
    let open = purse.segments.into_iter().filter(|(_, segment)| segment.state() == SegmentState::Open);
    for (row, segment) in open {
        let until = limits.until(&row.id).map_or(paid_until, |(capped, _)| capped.min(paid_until));
        let run_until = segment.run_until(until);
        if told(&row, &run_until, until, act.now) {
            continue;
        }
        let instance = tx.instance(scope, &row.instance_id).await?;
        let row = SegmentRow {
            run_until_mono_ms: Some(run_until.mono_ms),
            exhausts_at: Some(until),
            updated_at: row.updated_at.max(act.now),
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
        tell_exhausted(tx, act, scope, until).await?;
        stopped += u32::from(stop(tx, act, scope, &row, until, ReasonCode::BalanceExhausted).await?);
    }
    Ok(stopped)
}

/// Stops what runs under a spend cap that was reached at `until`: charging ends there.
pub async fn stop_capped(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    limit: &Limit,
    until: Timestamp,
) -> Result<u32, CorruptMoney> {
    let mut stopped = 0;
    for row in tx.open_segments_of_tenant(scope).await? {
        if limit.covers_open(&row.id) {
            caps::tell(tx, act, scope, limit).await?;
            stopped += u32::from(stop(tx, act, scope, &row, until, ReasonCode::SpendCapReached).await?);
        }
    }
    Ok(stopped)
}

/// Ends one run at `until`; whether it was there.
async fn stop(
    tx: &mut Tx,
    act: &mut Act,
    scope: &TenantScope,
    row: &SegmentRow,
    until: Timestamp,
    reason: ReasonCode,
) -> Result<bool, StoreError> {
    let Some(instance) = tx.instance(scope, &row.instance_id).await? else { return Ok(false) };
    let mut dossier = Dossier::load(tx, instance).await?;
    if dossier.row.desired_state == DesiredState::Running {
        dossier.row.desired_state = DesiredState::Stopped;
        dossier.row.desired_reason = reason;
        dossier.row.desired_since = until;
    }
    apply::converge(tx, act, &mut dossier, &HostView::default(), None).await?;
    Ok(true)
}

fn money_end(purse: &Purse, now: Timestamp) -> Result<Option<Timestamp>, CorruptMoney> {
    Ok(match forecast(purse.costing(), &purse.book, &purse.funds, now)? {
        Runway::Until(until) => Some(until),
        Runway::Unlimited => None,
    })
}

async fn tell_exhausted(
    tx: &mut Tx,
    act: &Act,
    scope: &TenantScope,
    until: Timestamp,
) -> Result<(), StoreError> {
    if !notices::mark(tx, act, scope, NoticeKind::BalanceExhausted).await? {
        return Ok(());
    }
    let crossing = format!("{} {}", NoticeKind::BalanceExhausted.as_str(), until.as_micros());
    let detail = json!({
        "exhausted_at_micros": until.as_micros(),
        "then": "every running instance was stopped; starts need an hour of their price",
    });
    notices::tell(tx, act, scope, NoticeKind::BalanceExhausted, &crossing, detail).await.map(drop)
}

/// Why a host ended `instance` by itself at the moment that it was told: the money, or a spend cap. The customer is told too, for when
/// the control plane comes to look nothing runs any more.
pub async fn why_ended(
    tx: &mut Tx,
    act: &Act,
    scope: &TenantScope,
    instance: &InstanceId,
) -> Result<ReasonCode, StoreError> {
    let Some(segment) = tx.open_segment_of_instance(scope, instance).await? else {
        let newest = tx.segments_of_instance(scope, instance).await?.pop();
        let capped = newest.is_some_and(|segment| segment.close_reason == Some(CloseReason::SpendCap));
        return Ok(if capped { ReasonCode::SpendCapReached } else { ReasonCode::BalanceExhausted });
    };
    let purse = Purse::load(tx, scope, act.now).await.map_err(corrupt)?;
    // It ended when it was told to, which may have been in a period that is over by now.
    let ended = segment.exhausts_at.map_or(act.now, |told| told.min(act.now));
    let limits = Limits::load(tx, scope, &purse, ended).await.map_err(corrupt)?;
    let money = money_end(&purse, act.now).map_err(corrupt)?;
    let capped = limits.until(&segment.id);
    let first = capped.filter(|(at, _)| money.is_none_or(|until| *at < until));
    // What the host was told may be a moment older than what is known now.
    let slack = act.now.plus_seconds(SLACK_SECONDS);
    if let Some((_, limit)) = first.filter(|(at, _)| *at <= slack) {
        caps::tell(tx, act, scope, limit).await?;
        return Ok(ReasonCode::SpendCapReached);
    }
    tell_exhausted(tx, act, scope, money.unwrap_or(ended).min(ended)).await?;
    Ok(ReasonCode::BalanceExhausted)
}

/// Before a commit: the runway of every tenant whose burn the transaction changed.
pub async fn rearm_changed(tx: &mut Tx, act: &mut Act) -> Result<(), StoreError> {
    for tenant_id in std::mem::take(&mut act.rearm) {
        rearm(tx, act, &TenantScope::proven(tenant_id)).await.map_err(corrupt)?;
    }
    Ok(())
}
