//! A report becomes the record, once and in order, with everything that follows from it in the same commit.
//!
//! Usage evidence is taken from any report of a proven host, however late: it names its own boot, interval and number, so order does
//! not matter to it. Everything else counts only from a report that is newer than what is known.

use std::sync::Arc;

use serde_json::json;
use tarn_protocol::control::{Report, ReportAccepted};
use tarn_protocol::ids::{EventId, HostId};
use tarn_protocol::units::Sequence;
use tarn_provisioner::reconcile::{Freshness, KnownBoot, freshness};
use tarn_rows::Json;
use tarn_rows::alerts::AlertRow;
use tarn_rows::boots::HostBootRow;
use tarn_rows::hosts::{HostReport, HostRow};
use tarn_store::{StoreError, Tx};

use super::{hardware, observed};
use crate::app::act::Act;
use crate::app::metering;
use crate::state::AppState;

pub const CLONED: &str = "cloned_identity";
pub const SWAPPED: &str = "swapped_identity";
pub const UNREACHABLE: &str = "host_unreachable";

pub async fn accept(state: &AppState, host: &HostId, report: Report) -> Result<ReportAccepted, StoreError> {
    let act = Act::at(state, state.clock.now());
    let last_usage = report.usage.iter().map(|usage| usage.seq).max();
    let (host, report) = (host.clone(), Arc::new(report));
    let (taken, act) = state
        .store
        .write(move |tx| {
            let (mut act, host, report) = (act.clone(), host.clone(), Arc::clone(&report));
            Box::pin(async move {
                let taken = take(tx, &mut act, &host, &report).await?;
                metering::exhaustion::rearm_changed(tx, &mut act).await?;
                act.hit("report.before_commit");
                Ok::<_, StoreError>((taken, act))
            })
        })
        .await?;
    act.hit("report.committed");
    act.announce(&state.wakeups);
    let usage_through = last_usage.filter(|_| taken != Taken::Nothing).unwrap_or_else(|| Sequence::new(0));
    Ok(ReportAccepted { usage_through, fresh: taken == Taken::All })
}

/// What of a report becomes the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    All,
    /// It is not news; its evidence counts.
    Evidence,
    /// The wrong machine speaks: its evidence stays with it until it speaks for itself again.
    Nothing,
}

async fn take(tx: &mut Tx, act: &mut Act, host_id: &HostId, report: &Report) -> Result<Taken, StoreError> {
    let Some(mut host) = tx.host(host_id).await? else { return Ok(Taken::Evidence) };
    let boots = tx.host_boots(host_id).await?;
    let known: Vec<KnownBoot> = boots.iter().map(known).collect();
    let fresh = match freshness(&known, &report.boot_id, report.seq, report.mono_ms) {
        Freshness::Fresh if speaks_for_another(tx, &boots, host_id, report).await? => {
            quarantine(tx, act, &host, SWAPPED, report).await?;
            return Ok(Taken::Nothing);
        }
        Freshness::Fresh => accept_order(tx, act, &host, report).await?,
        Freshness::Stale => false,
        Freshness::Cloned => {
            quarantine(tx, act, &host, CLONED, report).await?;
            false
        }
    };
    if !fresh {
        for usage in &report.usage {
            metering::evidence::accept(tx, act, host_id, usage).await?;
        }
        return Ok(Taken::Evidence);
    }
    let rebooted = boots.last().is_some_and(|last| last.boot_id != report.boot_id);
    remember_boot(tx, act, &boots, host_id, report).await?;
    host.boot_id = Some(report.boot_id.clone());
    hardware::store(tx, act, &mut host, report).await?;
    if rebooted {
        hardware::order_probes_again(tx, act, host_id).await?;
    }
    observed::take_over(tx, act, host_id, report).await?;
    Ok(Taken::All)
}

/// Whether a known host's report comes from a machine that is another host: credentials changed places. Nothing of it is taken over, so
/// the host counts as silent, and what runs on either machine is left alone. A host that is new may be a machine that joined again.
async fn speaks_for_another(
    tx: &mut Tx,
    boots: &[HostBootRow],
    host: &HostId,
    report: &Report,
) -> Result<bool, StoreError> {
    let new_boot = !boots.is_empty() && boots.iter().all(|boot| boot.boot_id != report.boot_id);
    Ok(new_boot && tx.boot_is_of_another_host(&report.boot_id, host).await?)
}

/// The compare-and-set that decides between racing reports, and the end of silence.
async fn accept_order(
    tx: &mut Tx,
    act: &mut Act,
    host: &HostRow,
    report: &Report,
) -> Result<bool, StoreError> {
    let order = HostReport {
        host_id: host.id.clone(),
        boot_id: report.boot_id.clone(),
        seq: report.seq,
        mono_ms: report.mono_ms,
        received_at: act.now,
    };
    let accepted = tx.accept_report(&order).await?;
    if accepted && host.unreachable_since.is_some() {
        tx.clear_alert(UNREACHABLE, host.id.as_str(), act.now).await?;
    }
    Ok(accepted)
}

async fn remember_boot(
    tx: &mut Tx,
    act: &Act,
    boots: &[HostBootRow],
    host: &HostId,
    report: &Report,
) -> Result<(), StoreError> {
    let first_at =
        boots.iter().find(|boot| boot.boot_id == report.boot_id).map_or(act.now, |boot| boot.first_at);
    let boot = HostBootRow {
        host_id: host.clone(),
        boot_id: report.boot_id.clone(),
        first_at,
        seq: report.seq,
        last_at: act.now,
        last_mono_ms: report.mono_ms,
    };
    tx.upsert_host_boot(&boot).await
}

fn known(row: &HostBootRow) -> KnownBoot {
    KnownBoot {
        boot_id: row.boot_id.clone(),
        first_at: row.first_at,
        seq: row.seq,
        last_at: row.last_at,
        last_mono_ms: row.last_mono_ms,
    }
}

/// A credential is where it should not be: nothing is placed there any more and older desired state is fenced off; what runs is left alone.
async fn quarantine(
    tx: &mut Tx,
    act: &mut Act,
    host: &HostRow,
    reason: &str,
    report: &Report,
) -> Result<(), StoreError> {
    if host.quarantine_reason.is_some() {
        return Ok(());
    }
    tx.set_host_quarantine(&host.id, Some(reason)).await?;
    tx.bump_epoch(&host.id).await?;
    act.changed_desired(&host.id);
    let alert = AlertRow {
        id: EventId::new(act.now, act.bits()),
        kind: reason.to_owned(),
        subject: host.id.to_string(),
        detail: Json(json!({"boot_ids": [host.boot_id, report.boot_id]})),
        created_at: act.now,
        cleared_at: None,
    };
    tx.open_alert(&alert).await.map(drop)
}
