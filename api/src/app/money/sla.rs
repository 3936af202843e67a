//! Service credits: broken promises are found in our own record, and credited once, with what proves them.
//!
//! Facts, never claims: the history of an instance (it was degraded by us, it failed by our fault) and the times in which a host was
//! silent. An incident is named by instance, kind and beginning; its row, the bucket it fills and the transfer that fills it are one
//! commit. What an incident is worth is decided in `tarn_billing::sla`.

use serde_json::{Value, json};
use tarn_billing::grant::{self, Grant, GrantKind, GrantTerms, InvalidGrant};
use tarn_billing::money::Micros;
use tarn_billing::rate::{Rate, Seconds};
use tarn_billing::sla::{self, IncidentKind, Worth};
use tarn_protocol::ids::{HostId, IncidentId, InstanceId};
use tarn_protocol::units::{Generation, Timestamp};
use tarn_provisioner::lifecycle::{Fault, ReasonCode};
use tarn_rows::instances::InstanceEventRow;
use tarn_rows::segments::SegmentRow;
use tarn_rows::sla::{IncidentRow, SilenceRow};
use tarn_rows::{Json, TenantScope};
use tarn_store::{StoreError, Tx};

use super::notices::{self, NoticeKind};
use super::top_up::{self, TopUpError};
use crate::app::act::Act;
use crate::app::metering::stored::corrupt;

/// How far back facts are looked for: longer than the control plane is ever away.
const LOOK_BACK_SECONDS: i64 = 2 * 24 * 3600;
/// Lines of history read at once.
const PAGE: u32 = 500;
/// Late evidence of what a run had cost may still come for so long.
const SETTLES_SECONDS: i64 = 300;

#[derive(Debug, thiserror::Error)]
pub enum SlaFailed {
    #[error(transparent)]
    Grant(#[from] InvalidGrant),
    #[error(transparent)]
    TopUp(#[from] TopUpError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A broken promise, before it is valued.
#[derive(Debug, Clone)]
pub struct Found {
    scope: TenantScope,
    instance: InstanceId,
    host: Option<HostId>,
    kind: IncidentKind,
    generation: Generation,
    from: Timestamp,
    to: Timestamp,
    rate: Rate,
    worth: Worth,
    evidence: Value,
}

/// Everything that is found in the record now and is not credited yet.
pub async fn find(tx: &mut Tx, now: Timestamp) -> Result<Vec<Found>, StoreError> {
    let since = now.plus_seconds(-LOOK_BACK_SECONDS);
    let mut found = Vec::new();
    for event in ours(tx, "instance.failed", IncidentKind::HostFault, since).await? {
        found.extend(lost_run(tx, event, now).await?);
    }
    for event in ours(tx, "instance.degraded", IncidentKind::Degraded, since).await? {
        found.extend(degraded(tx, event).await?);
    }
    for silence in tx.silences_ended(since).await? {
        found.extend(silent(tx, &silence).await?);
    }
    Ok(found)
}

/// Lines of history whose reason is our fault and that no incident is known of.
async fn ours(
    tx: &mut Tx,
    event_kind: &str,
    incident: IncidentKind,
    since: Timestamp,
) -> Result<Vec<(InstanceEventRow, ReasonCode)>, StoreError> {
    let (mut after, mut found) = (since, Vec::new());
    loop {
        let page = tx.events_without_incident(event_kind, incident.as_str(), after, PAGE).await?;
        let full = page.len() == PAGE as usize;
        after = page.last().map_or(after, |event| event.created_at);
        found.extend(page.into_iter().filter_map(|event| {
            let reason = reason_of(&event).filter(|reason| reason.fault() == Fault::Tarn)?;
            Some((event, reason))
        }));
        if !full {
            return Ok(found);
        }
    }
}

fn reason_of(event: &InstanceEventRow) -> Option<ReasonCode> {
    event.detail.0["reason"].as_str()?.parse().ok()
}

fn generation_of(event: &InstanceEventRow) -> Generation {
    Generation::new(event.detail.0["generation"].as_i64().unwrap_or(0))
}

async fn run_of(tx: &mut Tx, event: &InstanceEventRow) -> Result<Vec<SegmentRow>, StoreError> {
    tx.segments_of_run(&event.instance_id, generation_of(event)).await
}

async fn host_of(tx: &mut Tx, event: &InstanceEventRow) -> Result<Option<HostId>, StoreError> {
    let lease = tx.lease_of_generation(&event.instance_id, generation_of(event)).await?;
    Ok(lease.map(|lease| lease.host_id))
}

/// A run that was billed and then failed by our fault: its work is lost.
async fn lost_run(
    tx: &mut Tx,
    (event, reason): (InstanceEventRow, ReasonCode),
    now: Timestamp,
) -> Result<Option<Found>, StoreError> {
    if now.micros_since(event.created_at) < SETTLES_SECONDS * 1_000_000 {
        return Ok(None);
    }
    let run = run_of(tx, &event).await?;
    let Some(last) = run.last() else { return Ok(None) };
    let cost = Micros::checked_sum(run.iter().map(|row| row.settled_micros)).map_err(corrupt)?;
    let (from, rate) = (run[0].started_at, last.micros_per_hour);
    let scope = TenantScope::proven(event.tenant_id.clone());
    let credited = tx.credited_for_run(&scope, &event.instance_id, generation_of(&event)).await?;
    Ok(Some(Found {
        scope,
        host: host_of(tx, &event).await?,
        kind: IncidentKind::HostFault,
        generation: generation_of(&event),
        // Named by the instant at which it failed: a run fails once.
        from: event.created_at,
        to: event.created_at,
        rate,
        worth: sla::of_lost_run(rate, cost, credited),
        evidence: json!({
            "event_id": event.id, "reason": reason.as_str(), "run_started_at_micros": from.as_micros(), "run_cost": cost,
            "credited_before": credited,
            "segments": run.iter().map(proof).collect::<Vec<_>>(),
        }),
        instance: event.instance_id,
    }))
}

/// A run that worked, but not as sold, until it recovered or ended.
async fn degraded(
    tx: &mut Tx,
    (event, reason): (InstanceEventRow, ReasonCode),
) -> Result<Option<Found>, StoreError> {
    let next = tx.next_state_event(&event.instance_id, event.created_at).await?;
    let run = run_of(tx, &event).await?;
    let (Some(next), Some(last)) = (next, run.last()) else { return Ok(None) };
    let rate = last.micros_per_hour;
    let worth = sla::of_bad_time(rate, seconds_between(event.created_at, next.created_at));
    Ok((worth.amount > Micros::ZERO).then_some(Found {
        scope: TenantScope::proven(event.tenant_id.clone()),
        host: host_of(tx, &event).await?,
        kind: IncidentKind::Degraded,
        generation: generation_of(&event),
        from: event.created_at,
        to: next.created_at,
        rate,
        worth,
        evidence: json!({
            "event_id": event.id, "reason": reason.as_str(), "ended_by_event_id": next.id, "ended_by": next.kind,
            "segments": run.iter().map(proof).collect::<Vec<_>>(),
        }),
        instance: event.instance_id,
    }))
}

/// What ran on a host while it was silent: one incident for each run.
async fn silent(tx: &mut Tx, silence: &SilenceRow) -> Result<Vec<Found>, StoreError> {
    let mut found = Vec::new();
    for row in tx.segments_on_host(&silence.host_id, silence.from_at, silence.to_at).await? {
        let from = row.started_at.max(silence.from_at);
        let to = row.ended_at.map_or(silence.to_at, |ended_at| ended_at.min(silence.to_at));
        let worth = sla::of_bad_time(row.micros_per_hour, seconds_between(from, to));
        let known = tx.incident_known(&row.instance_id, IncidentKind::Unreachable.as_str(), from).await?;
        if worth.amount > Micros::ZERO && !known {
            found.push(Found {
                scope: TenantScope::proven(row.tenant_id.clone()),
                instance: row.instance_id.clone(),
                host: Some(silence.host_id.clone()),
                kind: IncidentKind::Unreachable,
                generation: row.generation,
                from,
                to,
                rate: row.micros_per_hour,
                worth,
                evidence: json!({
                    "alert_id": silence.alert_id, "silent_from_micros": silence.from_at.as_micros(),
                    "silent_to_micros": silence.to_at.as_micros(), "segments": [proof(&row)],
                }),
            });
        }
    }
    Ok(found)
}

fn seconds_between(from: Timestamp, to: Timestamp) -> Seconds {
    Seconds::floor_millis((to.micros_since(from) / 1000).max(0))
}

/// What shows that a segment ran: its boot and the milliseconds of that boot's clock that are proven.
fn proof(row: &SegmentRow) -> Value {
    let proven: u64 = row.covered.0.intervals().iter().map(|(from, to)| to - from).sum();
    json!({
        "segment_id": row.id, "boot_id": row.boot_id, "primary_gpu_uuid": row.meter_gpu_uuid,
        "started_at_micros": row.started_at.as_micros(), "ended_at_micros": row.ended_at.map(Timestamp::as_micros),
        "proven_ms": proven,
    })
}

/// Credits one incident, once; whether it is news.
pub async fn credit(tx: &mut Tx, act: &mut Act, found: &Found) -> Result<bool, SlaFailed> {
    let Found { scope, kind, worth, .. } = found;
    tx.lock_tenant(scope).await?;
    let name = format!("{} {} {}", found.instance, kind, found.from.as_micros());
    let due = worth.amount > Micros::ZERO;
    let grant_id = grant::sla_id(&name, found.from);
    let row = IncidentRow {
        id: IncidentId::new(act.now, act.bits()),
        tenant_id: scope.tenant_id().clone(),
        instance_id: found.instance.clone(),
        host_id: found.host.clone(),
        kind: *kind,
        generation: found.generation,
        from_at: found.from,
        to_at: found.to,
        micros_per_hour: found.rate,
        share_percent: worth.share_percent,
        amount_micros: worth.amount,
        grant_id: due.then(|| grant_id.clone()),
        evidence: Json(found.evidence.clone()),
        created_at: act.now,
    };
    if due {
        let earlier = tx.grant(scope, &grant_id).await?;
        if earlier.is_some() {
            return Ok(false);
        }
        let grant = Grant::new(GrantTerms {
            id: grant_id,
            tenant_id: scope.tenant_id().clone(),
            kind: GrantKind::Sla,
            priority: 5,
            amount: worth.amount,
            granted_at: act.now,
            expires_at: None,
        })?;
        top_up::put(tx, act, scope, &grant, None, &format!("service credit: {kind}")).await?;
    }
    if !tx.insert_incident(scope, &row).await? {
        return Err(tx.stale().into());
    }
    if due {
        let detail = json!({
            "incident_id": row.id, "instance_id": row.instance_id, "kind": kind, "amount": worth.amount,
            "share_percent": worth.share_percent,
        });
        notices::tell(tx, act, scope, NoticeKind::SlaCredit, &format!("sla {name}"), detail).await?;
    }
    Ok(true)
}

/// For the worker's log.
pub fn named(found: &Found) -> (&InstanceId, IncidentKind) {
    (&found.instance, found.kind)
}
