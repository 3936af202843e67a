//! Instances: started, ended, converged, placed again.

use std::collections::BTreeSet;

use tarn_billing::gate::{self, StartRequest};
use tarn_billing::money::Micros;
use tarn_billing::rate::Rate;
use tarn_billing::segment::{Anchor, CloseReason, Segment, SegmentState};
use tarn_protocol::control::Goal;
use tarn_protocol::ids::{GpuUuid, HoldId, HostId, InstanceId, LeaseId};
use tarn_protocol::units::{BootId, Generation, MonoMillis, Timestamp};
use tarn_provisioner::fleet::Fleet;
use tarn_provisioner::lease::Claim;
use tarn_provisioner::lifecycle::{Action, DesiredState, Event, ReasonCode, State, Wish};
use tarn_provisioner::placement::{self, Placed, Request};
use tarn_provisioner::reconcile::{
    Brakes, CloseAt, Effect, HostView, Instance, Published, judge, placement_refused, reconcile,
};

use super::{ControlPlane, Rental, lease_cards, offer_id};
use crate::audit;
use crate::facts::Fact;

const ROUNDS_MAX: usize = 5;

/// Where a report stands in time.
#[derive(Debug, Clone)]
pub struct ReportTime {
    pub received_at: Timestamp,
    pub boot_id: BootId,
    pub mono_ms: MonoMillis,
}

impl ControlPlane {
    fn brakes(&self) -> Brakes {
        let lost = self.hosts.values().filter(|host| host.unreachable_since.is_some()).count();
        judge(self.hosts.len(), lost, 0)
    }

    /// The start gate and a placement: the hour to hold and the cards, or nothing.
    fn check(&mut self, tenant: usize, offer: usize, now: Timestamp) -> Option<(Micros, Placed)> {
        let rate = self.book.at(&offer_id(offer), now)?.rate;
        let (burning, accrued) = self.burn(tenant, now);
        let funds = self.funds(tenant);
        let request =
            StartRequest { funds: &funds, accrued: Micros::new(accrued), burning: &burning, starting: rate };
        let admitted = gate::admit(request, now);
        audit::an_hour_is_there(self, tenant, rate, now, admitted.is_ok());
        let hold = admitted.ok()?.hold;
        let cards = self.setup.offers[offer].0;
        Some((hold, self.place(cards, &[])?))
    }

    fn burn(&self, tenant: usize, now: Timestamp) -> (Vec<Rate>, i64) {
        let tenant_id = &self.ledgers[tenant].tenant_id;
        let of = || self.segments.values().filter(|segment| segment.terms().tenant_id == *tenant_id);
        let open = of().filter(|segment| segment.state() == SegmentState::Open);
        let burning = open.map(|segment| segment.terms().rate).collect();
        (burning, of().map(|segment| segment.accrued(now).get()).sum())
    }

    fn place(&self, cards: usize, excluded: &[BTreeSet<GpuUuid>]) -> Option<Placed> {
        let mut fleet = self.fleet.clone();
        for host in &mut fleet {
            host.unreachable = self.hosts[&host.id].unreachable_since.is_some();
        }
        let request = Request { excluded: excluded.to_vec(), ..Request::cards(cards) };
        placement::place(&Fleet::new(fleet).expect("a fleet of the script"), &request).ok()
    }

    pub fn create(&mut self, tenant: usize, offer: usize) {
        let now = self.now();
        let Some((hold, placed)) = self.check(tenant, offer, now) else { return };
        let number = u64::try_from(self.order.len()).expect("few instances");
        let id = InstanceId::new(now, u128::from(number));
        let wish = Wish { state: DesiredState::Running, reason: ReasonCode::UserRequest, since: now };
        let instance = Instance {
            id: id.clone(),
            state: State::Requested,
            reason: None,
            generation: Generation::new(1),
            wish,
            claim: None,
            published: None,
            segment_boot: None,
            placement_attempts: 1,
            failed_sets: Vec::new(),
            progress_at: now,
        };
        let rental = Rental { number, tenant, offer, instance, host_id: None, leased_at: now };
        self.order.push(id.clone());
        self.rentals.insert(id.clone(), rental);
        self.facts.push(Fact::Started { instance_id: id.clone(), offer, tenant, at: now });
        self.take(&id, hold, &placed, now);
    }

    /// Stores hold and lease of an admitted start.
    fn take(&mut self, id: &InstanceId, hold: Micros, placed: &Placed, now: Timestamp) {
        let tenant = self.rentals[id].tenant;
        let parts = self.funds(tenant).reserve(hold, now).expect("the gate saw the money");
        for part in parts {
            let hold_id = HoldId::new(now, self.bits());
            self.ledgers[tenant].hold(hold_id, id, part, now);
        }
        self.lease(id, placed, now);
    }

    fn lease(&mut self, id: &InstanceId, placed: &Placed, now: Timestamp) {
        let lease_id = LeaseId::new(now, self.bits());
        let rental = self.rentals.get_mut(id).expect("stored");
        let claim = Claim::new(lease_id, id.clone(), rental.instance.generation, placed);
        let cards: Vec<GpuUuid> = claim.cards().cloned().collect();
        lease_cards(&mut self.fleet, &cards, Some(&claim.id));
        let generation = rental.instance.generation;
        rental.instance.claim = Some(claim);
        (rental.leased_at, rental.host_id) = (now, Some(placed.host_id.clone()));
        self.facts.push(Fact::Leased { instance_id: id.clone(), generation, at: now, cards });
    }

    /// The next generation, on `host`: a copy elsewhere must go.
    fn begin_generation(&mut self, id: &InstanceId, host: &HostId) {
        let rental = self.rentals.get_mut(id).expect("stored");
        let left = rental.instance.generation;
        rental.instance.generation = left.next();
        if let Some(old) = rental.host_id.replace(host.clone()).filter(|old| old != host) {
            self.hosts.get_mut(&old).expect("a known host").evictions.insert(id.clone(), left);
            self.publish(&old);
        }
        self.hosts.get_mut(host).expect("a known host").evictions.remove(id);
    }

    pub fn start(&mut self, id: &InstanceId) {
        let now = self.now();
        let rental = &self.rentals[id];
        if Action::Start.check(rental.instance.state).is_err() || rental.instance.claim.is_some() {
            return;
        }
        let (tenant, offer) = (rental.tenant, rental.offer);
        let Some((hold, placed)) = self.check(tenant, offer, now) else { return };
        self.begin_generation(id, &placed.host_id);
        self.take(id, hold, &placed, now);
        self.started(id, now);
    }

    pub fn restart(&mut self, id: &InstanceId) {
        let now = self.now();
        if Action::Restart.check(self.rentals[id].instance.state).is_err() {
            return;
        }
        self.wish(id, DesiredState::Stopped, now);
        let instance = &mut self.rentals.get_mut(id).expect("stored").instance;
        let Some(claim) = instance.claim.clone() else { return };
        instance.state = State::Stopped;
        self.begin_generation(id, &claim.host_id);
        let lease_id = LeaseId::new(now, self.bits());
        let rental = self.rentals.get_mut(id).expect("stored");
        let generation = rental.instance.generation;
        let cards: Vec<GpuUuid> = claim.cards().cloned().collect();
        rental.instance.claim = Some(Claim { id: lease_id.clone(), generation, ..claim });
        rental.leased_at = now;
        lease_cards(&mut self.fleet, &cards, None);
        lease_cards(&mut self.fleet, &cards, Some(&lease_id));
        self.facts.push(Fact::Leased { instance_id: id.clone(), generation, at: now, cards });
        self.started(id, now);
    }

    fn started(&mut self, id: &InstanceId, now: Timestamp) {
        let rental = self.rentals.get_mut(id).expect("stored");
        let instance = &mut rental.instance;
        instance.state = instance.state.after(Event::Start).expect("checked");
        instance.wish = Wish { state: DesiredState::Running, reason: ReasonCode::UserRequest, since: now };
        (instance.reason, instance.placement_attempts, instance.progress_at) = (None, 1, now);
        instance.failed_sets.clear();
        let (offer, tenant) = (rental.offer, rental.tenant);
        self.facts.push(Fact::Started { instance_id: id.clone(), offer, tenant, at: now });
        self.converge(id, &HostView::default(), None, now);
        self.rearm_changed(now);
    }

    /// `accepted` is when the clock was read: the commit may come after others that read it later.
    pub fn stop(&mut self, id: &InstanceId, accepted: Timestamp) {
        if Action::Stop.check(self.rentals[id].instance.state).is_ok() {
            self.wish(id, DesiredState::Stopped, accepted);
        }
    }

    pub fn terminate(&mut self, id: &InstanceId, accepted: Timestamp) {
        if self.rentals[id].instance.wish.state != DesiredState::Terminated {
            self.wish(id, DesiredState::Terminated, accepted);
        }
    }

    fn wish(&mut self, id: &InstanceId, state: DesiredState, at: Timestamp) {
        let settled = self.settled_of(id);
        self.facts.push(Fact::Ended { instance_id: id.clone(), at, settled });
        let instance = &mut self.rentals.get_mut(id).expect("stored").instance;
        instance.wish = Wish { state, reason: ReasonCode::UserRequest, since: at };
        self.converge(id, &HostView::default(), None, at);
        self.rearm_changed(at);
    }

    /// One tick of the reconciling worker.
    pub fn reconcile(&mut self) {
        let now = self.now();
        for id in self.order.clone() {
            let rental = &self.rentals[&id];
            let moving = matches!(
                rental.instance.state,
                State::Requested
                    | State::Scheduling
                    | State::Provisioning
                    | State::Starting
                    | State::Stopping
                    | State::Suspending
                    | State::Terminating
            );
            if !moving {
                continue;
            }
            let host = rental.host_id.as_ref().map(|host| &self.hosts[host]);
            let unreachable_since = host.and_then(|host| self.silent_since(host, now));
            let view = HostView { unreachable_since, ..HostView::default() };
            self.converge(&id, &view, None, now);
            let instance = &self.rentals[&id].instance;
            if instance.state == State::Scheduling && instance.claim.is_none() {
                self.place_again(&id, now);
            }
        }
        self.rearm_changed(now);
    }

    fn place_again(&mut self, id: &InstanceId, now: Timestamp) {
        let rental = &self.rentals[id];
        let (cards, excluded) = (self.setup.offers[rental.offer].0, rental.instance.failed_sets.clone());
        if let Some(placed) = self.place(cards, &excluded) {
            self.begin_generation(id, &placed.host_id);
            self.rentals.get_mut(id).expect("stored").instance.placement_attempts += 1;
            self.lease(id, &placed, now);
            self.converge(id, &HostView::default(), None, now);
        } else {
            let plan = placement_refused(&self.rentals[id].instance);
            for effect in plan.effects {
                self.apply(id, effect, None, now);
            }
        }
    }

    /// Plans and applies until the instance needs nothing more.
    pub(super) fn converge(
        &mut self,
        id: &InstanceId,
        view: &HostView,
        report: Option<&ReportTime>,
        now: Timestamp,
    ) {
        for _ in 0..ROUNDS_MAX {
            let plan = reconcile(&self.rentals[id].instance, view, self.brakes(), now);
            let moves = plan
                .effects
                .iter()
                .any(|effect| !matches!(effect, Effect::RaiseAlert(_) | Effect::Place { .. }));
            for effect in plan.effects {
                self.apply(id, effect, report, now);
            }
            if !moves {
                break;
            }
        }
    }

    fn apply(&mut self, id: &InstanceId, effect: Effect, report: Option<&ReportTime>, now: Timestamp) {
        let rental = self.rentals.get_mut(id).expect("stored");
        let instance = &mut rental.instance;
        match effect {
            Effect::SetState { from, to, reason } => {
                assert_eq!(instance.state, from, "a plan is carried out in order");
                (instance.state, instance.reason, instance.progress_at) = (to, reason, now);
                if matches!(to, State::Stopping | State::Stopped | State::Failed | State::Terminating) {
                    let tenant = rental.tenant;
                    self.ledgers[tenant].void_holds(id, now);
                    self.rearm.insert(tenant);
                }
            }
            Effect::SetDesired { state, reason } => instance.wish = Wish { state, reason, since: now },
            Effect::PublishDesired { generation, goal } => self.publish_goal(id, generation, goal),
            Effect::OpenSegment { primary, boot_id, ready_mono_ms, resumed } => {
                let Some(report) = report else { return };
                self.open(id, (primary, boot_id, ready_mono_ms), resumed, report, now);
            }
            Effect::CloseSegment { at, reason } => {
                instance.segment_boot = None;
                let at = match at {
                    CloseAt::Accepted(at) => Some(at),
                    CloseAt::LastEvidence => None,
                };
                self.close_segment(id, at, close_reason(reason), now);
            }
            Effect::ReleaseLease { lease_id, generation } => {
                let held = instance.claim.take().expect("a lease to release");
                assert_eq!((&held.id, held.generation), (&lease_id, generation), "only that lease");
                let cards: Vec<GpuUuid> = held.cards().cloned().collect();
                lease_cards(&mut self.fleet, &cards, None);
            }
            Effect::Place { exclude } => instance.failed_sets = exclude,
            Effect::RaiseAlert(_) => {}
        }
    }

    fn publish_goal(&mut self, id: &InstanceId, generation: Generation, goal: Goal) {
        let Some(host) = self.rentals[id].host_id.clone() else { return };
        let revision = self.publish(&host);
        self.rentals.get_mut(id).expect("stored").instance.published =
            Some(Published { generation, goal, revision });
    }

    fn open(
        &mut self,
        id: &InstanceId,
        (primary, boot_id, ready_mono_ms): (GpuUuid, BootId, MonoMillis),
        resumed: bool,
        report: &ReportTime,
        now: Timestamp,
    ) {
        let rental = &self.rentals[id];
        let of = self.segments.values().filter(|segment| segment.terms().instance_id == *id);
        let last_end = of.filter_map(Segment::ended_at).max();
        let accepted_at = rental.instance.wish.since.max(rental.leased_at);
        let not_before = Anchor::not_before(accepted_at, last_end, resumed, report.received_at);
        let anchor =
            Anchor::from_report(report.received_at, boot_id, report.mono_ms, ready_mono_ms, not_before);
        self.open_segment(id, primary, anchor);
        let rental = self.rentals.get_mut(id).expect("stored");
        rental.instance.segment_boot = Some(report.boot_id.clone());
        let tenant = rental.tenant;
        if self.ledgers[tenant].void_holds(id, now) {
            self.rearm.insert(tenant);
        }
    }
}

/// What the bill says; of equal ends the reason decides, and no second depends on it.
fn close_reason(reason: ReasonCode) -> CloseReason {
    match reason {
        ReasonCode::BalanceExhausted => CloseReason::BalanceExhausted,
        ReasonCode::CommandEnded => CloseReason::CommandEnded,
        ReasonCode::HostLost => CloseReason::HostLost,
        ReasonCode::UserRequest => CloseReason::UserRequest,
        _ => CloseReason::Failed,
    }
}
