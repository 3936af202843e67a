//! What time alone changes: silent hosts are flagged, times to live end, holds and requests for credit expire, orphans that nobody
//! put right are removed.

use serde_json::json;
use tarn_protocol::ids::EventId;
use tarn_protocol::units::Timestamp;
use tarn_provisioner::lifecycle::ReasonCode;
use tarn_provisioner::reconcile::SILENCE_SECONDS_MAX;
use tarn_rows::alerts::AlertRow;
use tarn_rows::hosts::HostRow;
use tarn_rows::instances::InstanceRow;
use tarn_rows::wallet::HoldState;
use tarn_rows::{Json, TenantScope};
use tarn_store::{StoreError, Tx};

use super::claim::Claim;
use super::{Report, WorkError};
use crate::app::act::{Act, RECONCILE};
use crate::app::agents::accept_report::UNREACHABLE;
use crate::app::agents::orphans;
use crate::app::instances::change;
use crate::app::instances::dossier::Dossier;
use crate::app::metering::{exhaustion, storage};
use crate::app::operators::credits;
use crate::state::AppState;

/// Instances ended in one tick because nobody pays for their disk.
const DISKS_MAX: u32 = 100;

pub async fn tick(state: &AppState, claim: Claim, now: Timestamp) -> Result<Report, WorkError> {
    let act = Act::at(state, now);
    let (report, act) = state
        .store
        .write(move |tx| {
            let mut act = act.clone();
            Box::pin(async move {
                claim.prove(tx).await?;
                let mut report = Report::default();
                flag_silent_hosts(tx, &mut act, &mut report).await?;
                end_times_to_live(tx, &mut act, &mut report).await?;
                end_unpaid_disks(tx, &mut act, &mut report).await?;
                expire_holds(tx, &mut act, &mut report).await?;
                let (looked, removed) = orphans::remove_kept(tx, &mut act).await?;
                report.seen += looked;
                report.changed += removed;
                report.changed += credits::expire(tx, act.now).await?;
                exhaustion::rearm_changed(tx, &mut act).await?;
                Ok::<_, WorkError>((report, act))
            })
        })
        .await?;
    act.announce(&state.wakeups);
    Ok(report)
}

/// A flag on the host; no state of any instance changes with it.
async fn flag_silent_hosts(tx: &mut Tx, act: &mut Act, report: &mut Report) -> Result<(), StoreError> {
    let silent_before = act.now.plus_seconds(-SILENCE_SECONDS_MAX);
    for host in tx.hosts_silent_since(silent_before).await? {
        report.seen += 1;
        let since = host.reported_at.map_or(act.now, |at| at.plus_seconds(SILENCE_SECONDS_MAX));
        if tx.set_unreachable(&host.id, silent_before, since).await? {
            report.changed += 1;
            tx.open_alert(&silence(act, &host)).await?;
            act.woke(RECONCILE);
            for instance in tx.instances_on_host(&host.id).await? {
                act.changed_instance(&instance.id);
            }
        }
    }
    Ok(())
}

fn silence(act: &Act, host: &HostRow) -> AlertRow {
    AlertRow {
        id: EventId::new(act.now, act.bits()),
        kind: UNREACHABLE.to_owned(),
        subject: host.id.to_string(),
        detail: Json(json!({"name": host.name, "reported_at": host.reported_at.map(Timestamp::as_micros)})),
        created_at: act.now,
        cleared_at: None,
    }
}

async fn end_times_to_live(tx: &mut Tx, act: &mut Act, report: &mut Report) -> Result<(), StoreError> {
    let due: Vec<InstanceRow> = tx.instances_past_ttl(act.now).await?;
    for row in due {
        report.seen += 1;
        report.changed += 1;
        let mut dossier = Dossier::load(tx, row).await?;
        change::terminate(tx, act, &mut dossier, ReasonCode::TtlReached).await?;
    }
    Ok(())
}

/// A disk that nobody has paid for since long goes, and its instance with it.
async fn end_unpaid_disks(tx: &mut Tx, act: &mut Act, report: &mut Report) -> Result<(), StoreError> {
    let unpaid_before = act.now.plus_seconds(-storage::KEPT_SECONDS);
    for id in tx.disks_unpaid_since(unpaid_before, DISKS_MAX).await? {
        report.seen += 1;
        let Some(row) = tx.instance_of_any_tenant(&id).await? else { continue };
        let mut dossier = Dossier::load(tx, row).await?;
        change::terminate(tx, act, &mut dossier, ReasonCode::BalanceExhausted).await?;
        report.changed += 1;
    }
    Ok(())
}

async fn expire_holds(tx: &mut Tx, act: &mut Act, report: &mut Report) -> Result<(), StoreError> {
    for hold in tx.holds_expired(act.now).await? {
        report.seen += 1;
        let scope = TenantScope::proven(hold.tenant_id.clone());
        if tx.resolve_hold(&scope, &hold.id, HoldState::Expired, act.now).await?.is_some() {
            report.changed += 1;
            act.rearm.insert(hold.tenant_id);
        }
    }
    Ok(())
}
