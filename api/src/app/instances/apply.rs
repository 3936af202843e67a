//! Carries out the planner's effects in the transaction that read the instance.

use serde_json::json;
use tarn_billing::segment::{Anchor, CloseReason};
use tarn_protocol::control::{Goal, Phase};
use tarn_protocol::ids::{EventId, GpuUuid};
use tarn_protocol::units::{BootId, Generation, MonoMillis, Timestamp};
use tarn_provisioner::lifecycle::{DesiredState, ReasonCode, State};
use tarn_provisioner::reconcile::{Alert, Brakes, CloseAt, Effect, HostView, Plan, Published, reconcile};
use tarn_rows::Json;
use tarn_rows::alerts::AlertRow;
use tarn_rows::instances::InstanceEventRow;
use tarn_rows::wallet::HoldState;
use tarn_store::{StoreError, Tx};

use super::dossier::Dossier;
use crate::app::act::{Act, RECONCILE};
use crate::app::brake;
use crate::app::metering;

/// Rounds of planning in one transaction: each takes the instance one state on.
const ROUNDS_MAX: usize = 5;

/// Where a report stands in time: its receipt and its own clock.
#[derive(Debug, Clone)]
pub struct ReportTime {
    pub received_at: Timestamp,
    pub boot_id: BootId,
    pub mono_ms: MonoMillis,
}

/// Plans and applies until the instance needs nothing more, and saves it. `report` is the report that `host` comes from, if one.
pub async fn converge(
    tx: &mut Tx,
    act: &mut Act,
    dossier: &mut Dossier,
    host: &HostView,
    report: Option<&ReportTime>,
) -> Result<(), StoreError> {
    for _ in 0..ROUNDS_MAX {
        let plan = planned(tx, act, dossier, host).await?;
        if let Some(ignored) = plan.ignored {
            tracing::warn!(instance_id = %dossier.row.id, ?ignored, "ignored what a host said of an instance");
        }
        let moves =
            plan.effects.iter().any(|effect| !matches!(effect, Effect::RaiseAlert(_) | Effect::Place { .. }));
        for effect in plan.effects {
            apply(tx, act, dossier, effect, report).await?;
        }
        if !moves {
            break;
        }
    }
    save(tx, dossier).await
}

/// The plan, without what the brake withholds.
async fn planned(tx: &mut Tx, act: &Act, dossier: &Dossier, host: &HostView) -> Result<Plan, StoreError> {
    let instance = dossier.instance();
    let plan = reconcile(&instance, host, Brakes::Free, act.now);
    let Some(reason) = plan.destroys() else { return Ok(plan) };
    let about = (dossier.row.host_id.as_ref(), &dossier.row.id);
    match brake::ask(tx, act.now, brake::Step::Fail(reason), about).await? {
        Brakes::Free => Ok(plan),
        Brakes::Frozen => Ok(reconcile(&instance, host, Brakes::Frozen, act.now)),
    }
}

/// Applies a plan that was made elsewhere; the caller saves.
pub async fn carry_out(
    tx: &mut Tx,
    act: &mut Act,
    dossier: &mut Dossier,
    plan: Plan,
) -> Result<(), StoreError> {
    for effect in plan.effects {
        apply(tx, act, dossier, effect, None).await?;
    }
    Ok(())
}

/// Saves, or makes the whole transaction try again when someone else changed the instance meanwhile.
pub async fn save(tx: &mut Tx, dossier: &mut Dossier) -> Result<(), StoreError> {
    if dossier.save(tx).await? { Ok(()) } else { Err(tx.stale()) }
}

async fn apply(
    tx: &mut Tx,
    act: &mut Act,
    dossier: &mut Dossier,
    effect: Effect,
    report: Option<&ReportTime>,
) -> Result<(), StoreError> {
    let effect = reasoned(tx, act, dossier, effect).await?;
    if !matches!(effect, Effect::RaiseAlert(_) | Effect::Place { .. }) {
        dossier.rely();
    }
    match effect {
        Effect::SetState { from, to, reason } => set_state(tx, act, dossier, (from, to), reason).await,
        Effect::SetDesired { state, reason } => {
            dossier.row.desired_state = state;
            dossier.row.desired_reason = reason;
            dossier.row.desired_since = act.now;
            Ok(())
        }
        Effect::PublishDesired { generation, goal } => publish(tx, act, dossier, generation, goal).await,
        Effect::OpenSegment { primary, boot_id, ready_mono_ms, resumed } => {
            open_segment(tx, act, dossier, (primary, boot_id, ready_mono_ms), resumed, report).await
        }
        Effect::CloseSegment { at, reason } => {
            let reason = close_reason(dossier.row.state, dossier.row.desired_state, reason);
            let at = match at {
                CloseAt::Accepted(at) => Some(at),
                CloseAt::LastEvidence => None,
            };
            metering::segments::close(tx, act, &dossier.row, at, reason).await?;
            dossier.segment_boot = None;
            Ok(())
        }
        Effect::ReleaseLease { lease_id, generation } => {
            tx.release_lease(&dossier.scope(), &lease_id, generation, act.now).await?;
            dossier.lease = None;
            // Freed cards may be what another instance waits for.
            act.woke(RECONCILE);
            Ok(())
        }
        // Placing takes turns with every other placement, so it is left to the worker, which asks the planner again.
        Effect::Place { exclude } => {
            dossier.plan.failed_sets = Json(exclude);
            act.woke(RECONCILE);
            Ok(())
        }
        Effect::RaiseAlert(alert) => raise(tx, act, dossier, alert).await,
    }
}

/// A host that ends what is not paid any longer says so; that it was a spend cap is known only here.
async fn reasoned(tx: &mut Tx, act: &Act, dossier: &Dossier, effect: Effect) -> Result<Effect, StoreError> {
    const ENDED: ReasonCode = ReasonCode::BalanceExhausted;
    let by_host = matches!(
        effect,
        Effect::SetState { reason: Some(ENDED), .. }
            | Effect::SetDesired { reason: ENDED, .. }
            | Effect::CloseSegment { reason: ENDED, .. }
    );
    if !by_host || dossier.row.desired_reason == ENDED {
        return Ok(effect);
    }
    // The planner closes the segment among its effects: what is known before that holds for all of them.
    let why = match dossier.row.desired_reason {
        known @ ReasonCode::SpendCapReached => known,
        _ => metering::exhaustion::why_ended(tx, act, &dossier.scope(), &dossier.row.id).await?,
    };
    Ok(match effect {
        Effect::SetState { from, to, .. } => Effect::SetState { from, to, reason: Some(why) },
        Effect::SetDesired { state, .. } => Effect::SetDesired { state, reason: why },
        Effect::CloseSegment { at, .. } => Effect::CloseSegment { at, reason: why },
        other => other,
    })
}

async fn set_state(
    tx: &mut Tx,
    act: &mut Act,
    dossier: &mut Dossier,
    (from, to): (State, State),
    reason: Option<ReasonCode>,
) -> Result<(), StoreError> {
    let row = &mut dossier.row;
    row.state = to;
    row.state_since = act.now;
    row.reason_code = reason;
    row.reason_detail = reason.and_then(|_| detail_of(row.observed_phase.as_ref().map(|phase| &phase.0)));
    row.phase = None;
    row.terminated_at = (to == State::Terminated).then_some(act.now);
    dossier.plan.progress_at = act.now;
    match (to, reason) {
        // Charging ends with the acceptance, whatever the host does.
        (State::Terminating | State::Terminated, _) => {
            let accepted = dossier.row.desired_since.min(act.now);
            metering::storage::close(tx, act, &dossier.row, accepted, CloseReason::Terminated).await?;
        }
        // A disk that is gone with its host is of no use to anyone.
        (State::Failed, Some(ReasonCode::HostLost)) => {
            metering::storage::close(tx, act, &dossier.row, act.now, CloseReason::HostLost).await?;
        }
        _ => {}
    }
    if matches!(to, State::Stopping | State::Stopped | State::Failed | State::Terminating) {
        void_holds(tx, act, dossier).await?;
        act.rearm.insert(dossier.row.tenant_id.clone());
    }
    act.changed_instance(&dossier.row.id);
    let detail = json!({"from": from, "to": to, "reason": reason, "generation": dossier.row.generation});
    record(tx, act, dossier, &format!("instance.{to}"), detail).await
}

/// What a host said in its own words of why it ended.
fn detail_of(phase: Option<&Phase>) -> Option<String> {
    match phase? {
        Phase::Failed { detail, .. } => Some(detail.clone()),
        Phase::Degraded { reason, .. } => Some(reason.clone()),
        _ => None,
    }
}

/// Adds a line to the instance's history.
pub async fn record(
    tx: &mut Tx,
    act: &Act,
    dossier: &Dossier,
    kind: &str,
    detail: serde_json::Value,
) -> Result<(), StoreError> {
    let event = InstanceEventRow {
        id: EventId::new(act.now, act.bits()),
        instance_id: dossier.row.id.clone(),
        tenant_id: dossier.row.tenant_id.clone(),
        kind: kind.to_owned(),
        detail: Json(detail),
        created_at: act.now,
    };
    tx.insert_instance_event(&dossier.scope(), &event).await
}

async fn publish(
    tx: &mut Tx,
    act: &mut Act,
    dossier: &mut Dossier,
    generation: Generation,
    goal: Goal,
) -> Result<(), StoreError> {
    let Some(host_id) = dossier.row.host_id.clone() else { return Ok(()) };
    let Some(revision) = tx.bump_desired_revision(&host_id).await? else { return Ok(()) };
    dossier.publish(Published { generation, goal, revision });
    act.changed_desired(&host_id);
    Ok(())
}

async fn open_segment(
    tx: &mut Tx,
    act: &mut Act,
    dossier: &mut Dossier,
    (primary, boot_id, ready_mono_ms): (GpuUuid, BootId, MonoMillis),
    resumed: bool,
    report: Option<&ReportTime>,
) -> Result<(), StoreError> {
    // Only a report shows an instance running.
    let Some(report) = report else { return Ok(()) };
    let earlier = tx.segments_of_instance(&dossier.scope(), &dossier.row.id).await?;
    let last_end = earlier.iter().filter_map(|segment| segment.ended_at).max();
    let leased_at = dossier.lease.as_ref().map_or(dossier.row.desired_since, |(lease, _)| lease.created_at);
    let accepted_at = dossier.row.desired_since.max(leased_at);
    let not_before = Anchor::not_before(accepted_at, last_end, resumed, report.received_at);
    let anchor = Anchor::from_report(report.received_at, boot_id, report.mono_ms, ready_mono_ms, not_before);
    // Usable from here on, so its disk costs from here on, if that is not charged already.
    metering::storage::open(tx, act, &dossier.row, anchor.at).await?;
    metering::segments::open(tx, act, &dossier.row, primary, anchor).await?;
    void_holds(tx, act, dossier).await?;
    dossier.segment_boot = Some(report.boot_id.clone());
    Ok(())
}

/// What the bill says of why an interval ended.
const fn close_reason(state: State, wish: DesiredState, reason: ReasonCode) -> CloseReason {
    match (reason, state, wish) {
        (ReasonCode::BalanceExhausted, ..) => CloseReason::BalanceExhausted,
        (ReasonCode::SpendCapReached, ..) => CloseReason::SpendCap,
        (ReasonCode::CommandEnded, ..) => CloseReason::CommandEnded,
        (ReasonCode::HostLost, ..) => CloseReason::HostLost,
        (_, State::Degraded, _) => CloseReason::Degraded,
        (_, State::Failed, _) => CloseReason::Failed,
        (_, _, DesiredState::Terminated) => CloseReason::Terminated,
        _ => CloseReason::UserRequest,
    }
}

async fn raise(tx: &mut Tx, act: &Act, dossier: &Dossier, alert: Alert) -> Result<(), StoreError> {
    let row = AlertRow {
        id: EventId::new(act.now, act.bits()),
        kind: alert.kind().to_owned(),
        subject: dossier.row.id.to_string(),
        detail: Json(
            json!({"host_id": dossier.row.host_id, "state": dossier.row.state, "alert": format!("{alert:?}")}),
        ),
        created_at: act.now,
        cleared_at: None,
    };
    tx.open_alert(&row).await.map(drop)
}

/// A start that is over, one way or the other, needs no money kept back.
async fn void_holds(tx: &mut Tx, act: &mut Act, dossier: &Dossier) -> Result<(), StoreError> {
    let scope = dossier.scope();
    for hold in tx.holds_pending(&scope).await? {
        if hold.instance_id.as_ref() == Some(&dossier.row.id) {
            tx.resolve_hold(&scope, &hold.id, HoldState::Voided, act.now).await?;
            act.rearm.insert(dossier.row.tenant_id.clone());
        }
    }
    Ok(())
}
