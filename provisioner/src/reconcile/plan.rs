//! The planner of one instance.

use tarn_protocol::control::Goal;
use tarn_protocol::units::Timestamp;

use super::breaker::Brakes;
use super::effect::{Alert, CloseAt, Effect, Ignored, Plan, unasked};
use super::instance::{HostView, Instance};
use crate::lifecycle::{DesiredState, Event, Next, Observed, ReasonCode, State, next};

/// Sets of cards tried for one start.
pub const PLACEMENT_ATTEMPTS_MAX: u32 = 3;
/// Without any progress for this long, provisioning has failed. Duration alone never fails it.
pub const PROVISIONING_STALL_SECONDS: i64 = 600;
/// A stop or termination without proof for this long is an operator's matter.
pub const UNPROVEN_ALERT_SECONDS: i64 = 60;

/// What to do for `instance`, given its host's newest report.
pub fn reconcile(instance: &Instance, host: &HostView, brakes: Brakes, now: Timestamp) -> Plan {
    let (observed, ignored) = instance.observed(host);
    let mut effects = Vec::new();
    let step = bounded(instance, host, next(instance.wish.state, instance.state, observed), now);
    let step = braked(step, brakes, &mut effects);
    let end = transitions(instance, step, observed, &mut effects);
    segment(instance, host, observed, step, end, &mut effects);
    lease(instance, observed, end, &mut effects);
    publish(instance, end, &mut effects);
    alerts(instance, host, ignored, end, now, &mut effects);
    Plan { instance_id: instance.id.clone(), effects, ignored }
}

/// What to do when [`Effect::Place`] found no cards: the instance fails for the reason that made it look again.
pub fn placement_refused(instance: &Instance) -> Plan {
    let reason = instance.reason.filter(|reason| reason.blames_cards()).unwrap_or(ReasonCode::NoCapacity);
    let effects = match instance.state.after(Event::Fail) {
        Ok(to) if instance.claim.is_none() => {
            vec![Effect::SetState { from: instance.state, to, reason: Some(reason) }]
        }
        _ => Vec::new(),
    };
    Plan { instance_id: instance.id.clone(), effects, ignored: None }
}

/// The mapping's answer within the limits that it does not know: leases, attempts, time.
fn bounded(instance: &Instance, host: &HostView, step: Next, now: Timestamp) -> Next {
    let leased = instance.claim.is_some();
    match (instance.state, step.events) {
        (State::Requested, [Event::Schedule, ..]) if !leased => Next { events: &[Event::Schedule], ..step },
        (State::Scheduling, [Event::Provision]) if !leased => Next::STAY,
        (_, [Event::Reschedule]) if instance.placement_attempts >= PLACEMENT_ATTEMPTS_MAX => {
            Next { events: &[Event::Fail], ..step }
        }
        (State::Provisioning | State::Starting, []) if stalled(instance, host, now) => {
            Next { events: &[Event::Fail], reason: Some(ReasonCode::ProvisioningTimeout) }
        }
        _ => step,
    }
}

/// A host out of contact cannot show progress: that is no stall.
fn stalled(instance: &Instance, host: &HostView, now: Timestamp) -> bool {
    let silent_micros = now.micros_since(instance.progress_at);
    host.unreachable_since.is_none() && silent_micros > PROVISIONING_STALL_SECONDS * 1_000_000
}

/// Withholds what nobody asked for and what cannot be undone, while the breaker is open.
fn braked(step: Next, brakes: Brakes, effects: &mut Vec<Effect>) -> Next {
    match (brakes, step.reason) {
        (Brakes::Frozen, Some(reason)) if unasked(reason) && step.events == [Event::Fail] => {
            effects.push(Effect::RaiseAlert(Alert::BreakerHeld { reason }));
            Next::STAY
        }
        _ => step,
    }
}

/// Records the events and returns the state they end in.
fn transitions(instance: &Instance, step: Next, observed: Observed, effects: &mut Vec<Effect>) -> State {
    let mut state = instance.state;
    for &event in step.events {
        let to = state.after(event).expect("the mapping answers with legal transitions only");
        effects.push(Effect::SetState { from: state, to, reason: reason_after(instance, step, event) });
        state = to;
    }
    let by_itself = matches!(observed, Observed::Stopped { .. }) && step.reason.is_some();
    if let (State::Stopped, DesiredState::Running, Some(reason), true) =
        (state, instance.wish.state, step.reason, by_itself)
    {
        effects.push(Effect::SetDesired { state: DesiredState::Stopped, reason });
    }
    state
}

fn reason_after(instance: &Instance, step: Next, event: Event) -> Option<ReasonCode> {
    match event {
        Event::Schedule | Event::Provision | Event::Start | Event::Ready | Event::Recover => None,
        Event::Stop | Event::Suspend | Event::Terminate => Some(step.reason.unwrap_or(instance.wish.reason)),
        // The end of what began with a reason of its own keeps that reason.
        Event::Stopped | Event::Suspended | Event::Gone => step.reason.or(instance.reason),
        Event::Degrade | Event::Reschedule | Event::Fail => step.reason,
    }
}

/// A segment lies within one boot, on the primary, while the state is billable.
fn segment(
    instance: &Instance,
    host: &HostView,
    observed: Observed,
    step: Next,
    end: State,
    effects: &mut Vec<Effect>,
) {
    let evidence = match (observed, &instance.claim, &host.boot_id) {
        (Observed::Running { ready_mono_ms }, Some(claim), Some(boot_id)) if end.billable() => {
            Some((ready_mono_ms, claim, boot_id))
        }
        _ => None,
    };
    let rebooted =
        evidence.is_some() && instance.segment_boot.is_some() && instance.segment_boot != host.boot_id;
    if instance.segment_boot.is_some() && (rebooted || !end.billable()) {
        let wished = step.reason.is_none() && instance.wish.state != DesiredState::Running;
        let at = if wished { CloseAt::Accepted(instance.wish.since) } else { CloseAt::LastEvidence };
        let reason =
            if rebooted { ReasonCode::HostLost } else { step.reason.unwrap_or(instance.wish.reason) };
        effects.push(Effect::CloseSegment { at, reason });
    }
    if let (Some((ready_mono_ms, claim, boot_id)), true) =
        (evidence, instance.segment_boot.is_none() || rebooted)
    {
        let (primary, boot_id) = (claim.primary.clone(), boot_id.clone());
        let resumed = rebooted || instance.state == State::Degraded;
        effects.push(Effect::OpenSegment { primary, boot_id, ready_mono_ms, resumed });
    }
}

/// Frees cards that are proven quiet, and asks for others while the instance still looks for some.
fn lease(instance: &Instance, observed: Observed, end: State, effects: &mut Vec<Effect>) {
    let over = match end {
        State::Stopped | State::Suspended | State::Failed | State::Terminated => true,
        State::Scheduling => instance.state != State::Requested,
        _ => false,
    };
    let mut exclude = instance.failed_sets.clone();
    if let Some(claim) = &instance.claim {
        if !over || !observed.quiet() {
            return;
        }
        effects.push(Effect::ReleaseLease { lease_id: claim.id.clone(), generation: claim.generation });
        exclude.push(instance.cards());
    }
    if end == State::Scheduling {
        effects.push(Effect::Place { exclude });
    }
}

/// Tells the host, unless it was told.
fn publish(instance: &Instance, end: State, effects: &mut Vec<Effect>) {
    let goal = match end {
        State::Provisioning | State::Starting | State::Running | State::Degraded => Goal::Running,
        State::Stopping | State::Stopped | State::Suspending | State::Suspended | State::Failed => {
            Goal::Stopped
        }
        State::Terminating => Goal::Absent,
        // Without cards there is nobody to tell; what is left on the old host is swept as an orphan there.
        State::Requested | State::Scheduling | State::Terminated => return,
    };
    let told = instance.published.filter(|published| published.generation == instance.generation);
    let wanted = match told {
        None => goal == Goal::Running && instance.claim.is_some(),
        Some(told) => told.goal != goal,
    };
    if wanted {
        effects.push(Effect::PublishDesired { generation: instance.generation, goal });
    }
}

fn alerts(
    instance: &Instance,
    host: &HostView,
    ignored: Option<Ignored>,
    end: State,
    now: Timestamp,
    effects: &mut Vec<Effect>,
) {
    if let Some(Ignored::GenerationAhead { seen, current }) = ignored {
        effects.push(Effect::RaiseAlert(Alert::GenerationAhead { seen, current }));
    }
    let since = instance.wish.since;
    let ending = matches!(end, State::Stopping | State::Suspending | State::Terminating);
    let late = now.micros_since(since) > UNPROVEN_ALERT_SECONDS * 1_000_000;
    if ending && (late || host.unreachable_since.is_some()) {
        effects.push(Effect::RaiseAlert(Alert::Unproven { since }));
    }
}
