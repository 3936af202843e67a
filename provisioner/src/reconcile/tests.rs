//! The planner against a model of store and host that applies every effect.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tarn_protocol::control::Goal;
use tarn_protocol::ids::{GpuUuid, HostId, InstanceId, LeaseId};
use tarn_protocol::units::{BootId, Generation, MonoMillis, Timestamp};

use super::*;
use crate::lease::Claim;
use crate::lifecycle::{DesiredState, Event, Observed, ReasonCode, State, Wish};

const RUNNING: Observed = Observed::Running { ready_mono_ms: MonoMillis::new(7) };

/// Store and host of one instance.
#[derive(Debug)]
struct World {
    instance: Instance,
    host: HostView,
    now: Timestamp,
    /// Sets of two cards that are left to try.
    sets_left: u8,
    closes: Vec<CloseAt>,
    alerts: Vec<Alert>,
    /// Cards that were free while the host had something of the instance running: must never happen.
    freed_while_busy: bool,
}

impl World {
    fn new() -> Self {
        let now = Timestamp::from_micros(1_000_000_000);
        let wish = Wish { state: DesiredState::Running, reason: ReasonCode::UserRequest, since: now };
        let instance = Instance {
            id: InstanceId::new(now, 1),
            state: State::Requested,
            reason: None,
            generation: Generation::new(0),
            wish,
            claim: None,
            published: None,
            segment_boot: None,
            placement_attempts: 0,
            failed_sets: Vec::new(),
            progress_at: now,
        };
        let host = HostView { boot_id: Some(BootId::new("boot")), ..HostView::default() };
        let mut world = Self {
            instance,
            host,
            now,
            sets_left: 5,
            closes: vec![],
            alerts: vec![],
            freed_while_busy: false,
        };
        world.lease();
        world
    }

    fn lease(&mut self) -> bool {
        let Some(left) = self.sets_left.checked_sub(1) else { return false };
        self.sets_left = left;
        let instance = &mut self.instance;
        instance.generation = instance.generation.next();
        instance.placement_attempts += 1;
        instance.progress_at = self.now;
        instance.claim = Some(Claim {
            id: LeaseId::new(self.now, u128::from(left)),
            instance_id: instance.id.clone(),
            host_id: HostId::new(self.now, 1),
            generation: instance.generation,
            primary: GpuUuid::from_bytes([2 * left; 16]),
            donors: vec![GpuUuid::from_bytes([2 * left + 1; 16])],
        });
        true
    }

    fn wish(&mut self, state: DesiredState) {
        self.instance.wish = Wish { state, reason: ReasonCode::UserRequest, since: self.now };
    }

    /// The host shows `observed` of the current generation, knowing the newest goal.
    fn sees(&mut self, observed: Observed) {
        self.host.desired_revision = self.instance.published.map(|published| published.revision);
        self.host.sighting = match observed {
            Observed::Absent | Observed::Unknown => None,
            observed => Some(Sighting { generation: self.instance.generation, observed }),
        };
    }

    fn plan(&self) -> Plan {
        reconcile(&self.instance, &self.host, Brakes::Free, self.now)
    }

    /// Plans and applies until nothing but alerts is left.
    fn settle(&mut self) {
        for _ in 0..12 {
            let plan = self.plan();
            let work = plan.effects.iter().any(|effect| !matches!(effect, Effect::RaiseAlert(_)));
            self.apply(plan);
            if !work {
                return;
            }
        }
        panic!("does not settle: {self:?}");
    }

    fn apply(&mut self, plan: Plan) {
        for effect in plan.effects {
            let instance = &mut self.instance;
            match effect {
                Effect::SetState { from, to, reason } => {
                    assert_eq!(instance.state, from);
                    assert!(Event::ALL.iter().any(|event| from.after(*event) == Ok(to)));
                    (instance.state, instance.reason) = (to, reason);
                }
                Effect::SetDesired { state, reason } => {
                    instance.wish = Wish { state, reason, since: self.now };
                }
                Effect::PublishDesired { generation, goal } => {
                    let revision = instance.published.map_or(1, |published| published.revision + 1);
                    instance.published = Some(Published { generation, goal, revision });
                }
                Effect::OpenSegment { primary, boot_id, .. } => {
                    assert!(instance.segment_boot.is_none());
                    assert_eq!(Some(&primary), instance.claim.as_ref().map(|claim| &claim.primary));
                    instance.segment_boot = Some(boot_id);
                }
                Effect::CloseSegment { at, .. } => {
                    assert!(instance.segment_boot.is_some());
                    instance.segment_boot = None;
                    self.closes.push(at);
                }
                Effect::ReleaseLease { lease_id, generation } => {
                    let claim = instance.claim.take().expect("a lease to release");
                    assert_eq!((claim.id, claim.generation), (lease_id, generation));
                    let busy = self.host.sighting.filter(|seen| seen.generation == generation);
                    self.freed_while_busy |= busy.is_some_and(|seen| !seen.observed.quiet());
                }
                Effect::Place { exclude } => {
                    instance.failed_sets = exclude;
                    if !self.lease() {
                        let plan = placement_refused(&self.instance);
                        self.apply(plan);
                    }
                }
                Effect::RaiseAlert(alert) => self.alerts.push(alert),
            }
        }
    }

    fn run(&mut self) {
        self.settle();
        self.sees(Observed::Launching);
        self.settle();
        self.sees(RUNNING);
        self.settle();
        assert_eq!((self.instance.state, self.instance.segment_boot.is_some()), (State::Running, true));
    }
}

#[test]
fn a_create_reaches_running_and_opens_one_segment() {
    let mut world = World::new();
    world.run();
    assert!(world.plan().settled(), "a converged instance has no plan");
}

#[test]
fn l1_termination_stops_billing_at_the_request_and_waits_for_proof() {
    let mut world = World::new();
    world.run();
    world.host.unreachable_since = Some(world.now);
    world.now = world.now.plus_seconds(100);
    world.wish(DesiredState::Terminated);
    world.settle();
    assert_eq!(world.closes, [CloseAt::Accepted(world.instance.wish.since)]);
    assert_eq!(world.instance.state, State::Terminating);
    assert!(world.instance.claim.is_some(), "no proof, no release");
    assert!(matches!(world.alerts.as_slice(), [Alert::Unproven { .. }, ..]));
    // A report made before the host learned the goal proves nothing.
    world.host.sighting = None;
    world.settle();
    assert_eq!(world.instance.state, State::Terminating);
    world.host.unreachable_since = None;
    world.sees(Observed::Absent);
    world.settle();
    assert_eq!((world.instance.state, world.instance.claim.is_none()), (State::Terminated, true));
}

#[test]
fn l7_lost_contact_plans_nothing_however_long() {
    let mut world = World::new();
    world.run();
    world.host.unreachable_since = Some(world.now);
    for seconds in [5, 60, 1_200, 1_000_000] {
        world.now = world.now.plus_seconds(seconds);
        assert!(world.plan().settled(), "{seconds} s");
    }
}

#[test]
fn p6_a_set_that_fails_its_proof_is_followed_by_the_next_and_then_by_failure() {
    let mut world = World::new();
    world.settle();
    let mut tried = BTreeSet::new();
    for attempt in 1..=PLACEMENT_ATTEMPTS_MAX {
        assert_eq!(world.instance.placement_attempts, attempt);
        tried.insert(world.instance.claim.as_ref().unwrap().primary.clone());
        world.sees(Observed::Failed { reason: ReasonCode::P2pDataMismatch });
        world.settle();
    }
    assert_eq!(tried.len(), 3, "each attempt had its own cards");
    let instance = &world.instance;
    assert_eq!((instance.state, instance.reason), (State::Failed, Some(ReasonCode::P2pDataMismatch)));
    assert!(instance.claim.is_none() && world.closes.is_empty(), "no cards kept, nothing billed");
}

#[test]
fn p6_without_another_set_the_first_reason_stays() {
    let mut world = World::new();
    world.settle();
    world.sets_left = 0;
    world.sees(Observed::Failed { reason: ReasonCode::PoolVerifyFailed });
    world.settle();
    assert_eq!(world.instance.reason, Some(ReasonCode::PoolVerifyFailed));
    assert!(world.instance.claim.is_none());
}

#[test]
fn l10_a_failed_command_is_not_tried_on_other_cards() {
    let mut world = World::new();
    world.settle();
    world.sees(Observed::Failed { reason: ReasonCode::CommandFailed });
    world.settle();
    assert_eq!(world.instance.state, State::Failed);
    assert_eq!(world.instance.placement_attempts, 1);
    assert!(world.plan().settled());
}

#[test]
fn an_instance_that_ends_by_itself_is_stopped_and_billed_to_its_last_evidence() {
    let mut world = World::new();
    world.run();
    world.sees(Observed::Stopped { reason: ReasonCode::BalanceExhausted });
    world.settle();
    let instance = &world.instance;
    assert_eq!((instance.state, instance.wish.state), (State::Stopped, DesiredState::Stopped));
    assert_eq!(instance.reason, Some(ReasonCode::BalanceExhausted));
    assert_eq!(world.closes, [CloseAt::LastEvidence]);
    assert!(instance.claim.is_none());
}

#[test]
fn degraded_is_not_billed_and_recovers_into_a_new_segment() {
    let mut world = World::new();
    world.run();
    world.sees(Observed::Degraded { ready_mono_ms: MonoMillis::new(7), reason: ReasonCode::PeerLost });
    world.settle();
    assert_eq!((world.instance.state, world.instance.segment_boot.is_some()), (State::Degraded, false));
    assert_eq!(world.instance.reason, Some(ReasonCode::PeerLost));
    world.sees(RUNNING);
    world.settle();
    assert_eq!((world.instance.state, world.instance.segment_boot.is_some()), (State::Running, true));
}

#[test]
fn a_reboot_that_was_only_seen_afterwards_still_splits_the_segment() {
    let mut world = World::new();
    world.run();
    world.host.boot_id = Some(BootId::new("next boot"));
    world.settle();
    assert_eq!(world.closes, [CloseAt::LastEvidence]);
    assert_eq!(world.instance.segment_boot, world.host.boot_id);
    assert!(world.plan().settled());
}

#[test]
fn older_generations_change_nothing_and_newer_ones_call_an_operator() {
    let mut world = World::new();
    world.run();
    let current = world.instance.generation;
    let old = Generation::new(current.get() - 1);
    let failed = Observed::Failed { reason: ReasonCode::GpuFault };
    world.host.sighting = Some(Sighting { generation: old, observed: failed });
    let plan = world.plan();
    assert!(plan.settled());
    assert_eq!(plan.ignored, Some(Ignored::StaleGeneration { seen: old, current }));
    let seen = current.next();
    world.host.sighting = Some(Sighting { generation: seen, observed: failed });
    assert_eq!(world.plan().effects, [Effect::RaiseAlert(Alert::GenerationAhead { seen, current })]);
}

#[test]
fn a_stall_fails_but_keeps_the_cards_until_the_host_is_quiet() {
    let mut world = World::new();
    world.settle();
    world.sees(Observed::Preparing);
    world.now = world.now.plus_seconds(PROVISIONING_STALL_SECONDS + 1);
    let frozen = reconcile(&world.instance, &world.host, Brakes::Frozen, world.now);
    let held = Alert::BreakerHeld { reason: ReasonCode::ProvisioningTimeout };
    assert_eq!(frozen.effects, [Effect::RaiseAlert(held)]);
    world.settle();
    assert_eq!(world.instance.reason, Some(ReasonCode::ProvisioningTimeout));
    assert!(world.instance.claim.is_some());
    assert_eq!(world.instance.published.map(|published| published.goal), Some(Goal::Stopped));
    world.sees(Observed::Stopped { reason: ReasonCode::UserRequest });
    world.settle();
    assert!(world.instance.claim.is_none());
}

fn observation() -> impl Strategy<Value = Observed> {
    let reason = || prop::sample::select(ReasonCode::ALL);
    let ready_mono_ms = MonoMillis::new(7);
    prop_oneof![
        Just(Observed::Absent),
        Just(Observed::Preparing),
        Just(Observed::Launching),
        Just(RUNNING),
        Just(Observed::Stopping),
        reason().prop_map(move |reason| Observed::Degraded { ready_mono_ms, reason }),
        reason().prop_map(|reason| Observed::Stopped { reason }),
        reason().prop_map(|reason| Observed::Failed { reason }),
    ]
}

proptest! {
    #[test]
    fn whatever_a_host_shows_plans_settle_and_cards_are_never_freed_under_a_running_instance(
        shown in prop::collection::vec((observation(), any::<bool>(), 0i64..400), 0..12),
        stop_after in 0usize..12,
    ) {
        let mut world = World::new();
        world.settle();
        for (position, (observed, heard, seconds)) in shown.into_iter().enumerate() {
            if position == stop_after {
                world.wish(DesiredState::Stopped);
            }
            world.now = world.now.plus_seconds(seconds);
            world.host.unreachable_since = (!heard).then_some(world.now);
            if heard {
                world.sees(observed);
            }
            world.settle();
            prop_assert!(!world.freed_while_busy);
            prop_assert!(world.instance.claim.is_none() || world.instance.state.holds_gpus());
            prop_assert!(world.instance.segment_boot.is_none() || world.instance.state.billable());
        }
    }

    #[test]
    fn l2_a_delete_at_any_moment_ends_terminated_with_the_cards_free(
        shown in prop::collection::vec(observation(), 0..8),
    ) {
        let mut world = World::new();
        for observed in shown {
            world.settle();
            world.sees(observed);
        }
        world.wish(DesiredState::Terminated);
        world.settle();
        world.sees(Observed::Absent);
        world.settle();
        prop_assert_eq!(world.instance.state, State::Terminated);
        prop_assert!(world.instance.claim.is_none() && world.instance.segment_boot.is_none());
        prop_assert!(world.plan().settled());
    }
}
