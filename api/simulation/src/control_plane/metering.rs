//! From evidence to ledger: segments open, collect proof, settle and end.

use tarn_billing::account::AccountKind;
use tarn_billing::catch_up::{Step, catch_up};
use tarn_billing::evidence;
use tarn_billing::exhaustion::{HORIZON_SECONDS, Runway, forecast};
use tarn_billing::funds::Funds;
use tarn_billing::meter::Meter;
use tarn_billing::segment::{Anchor, CloseReason, Heard, Segment, SegmentState, SegmentTerms};
use tarn_billing::settlement::Settlement;
use tarn_protocol::control::UsageEvidence;
use tarn_protocol::ids::{GpuUuid, HostId, InstanceId, SegmentId};
use tarn_protocol::units::Timestamp;
use tarn_provisioner::lifecycle::{DesiredState, ReasonCode};
use tarn_provisioner::reconcile::HostView;

use super::{ControlPlane, Paid, offer_id};
use crate::audit;
use crate::facts::{Fact, Settled};

const ROUNDS_MAX: u32 = 3;

impl ControlPlane {
    pub(super) fn open_segment(&mut self, id: &InstanceId, primary: GpuUuid, anchor: Anchor) {
        let bits = self.bits();
        let rental = &self.rentals[id];
        let offer = offer_id(rental.offer);
        let price = self.book.at(&offer, anchor.at).expect("what runs has a price");
        let segment = Segment::open(SegmentTerms {
            id: SegmentId::new(anchor.at, bits),
            tenant_id: self.ledgers[rental.tenant].tenant_id.clone(),
            instance_id: id.clone(),
            generation: rental.instance.generation,
            offer_id: offer,
            meter: Meter::Card(primary),
            price_version: price.version,
            rate: price.rate,
            anchor,
        });
        self.rearm.insert(rental.tenant);
        self.insert(segment);
    }

    /// Inserts a segment as the schema lets it in.
    fn insert(&mut self, segment: Segment) {
        audit::no_second_twice(&self.segments, &segment);
        assert!(self.segments.insert(segment.id().clone(), segment).is_none(), "M11: a segment opens once");
    }

    fn save(&mut self, segment: Segment) {
        audit::no_second_twice(&self.segments, &segment);
        self.segments.insert(segment.id().clone(), segment).expect("an update of what is there");
    }

    pub fn open_segment_of(&self, id: &InstanceId) -> Option<&Segment> {
        let of =
            |segment: &&Segment| segment.terms().instance_id == *id && segment.state() == SegmentState::Open;
        self.segments.values().find(of)
    }

    pub(super) fn settled_of(&self, id: &InstanceId) -> Option<Settled> {
        let segment = self.open_segment_of(id)?;
        Some(Settled {
            price_version: segment.terms().price_version.get(),
            seconds: segment.settled().seconds.get(),
        })
    }

    pub(super) fn close_segment(
        &mut self,
        id: &InstanceId,
        at: Option<Timestamp>,
        reason: CloseReason,
        now: Timestamp,
    ) {
        let Some(segment) = self.open_segment_of(id).cloned() else { return };
        let rental = &self.rentals[id];
        let boots = rental.host_id.as_ref().map(|host| &self.hosts[host].boots);
        let boot =
            boots.and_then(|boots| boots.iter().find(|boot| boot.boot_id == segment.terms().anchor.boot_id));
        let heard = boot.map(|boot| Heard { at: boot.last_at, mono_ms: boot.last_mono_ms });
        self.rearm.insert(rental.tenant);
        let closed = segment.end(at, heard, reason, now).expect("a segment ends where its run did");
        self.save(closed);
    }

    /// Stores one piece of evidence and adds it to what its segments prove. A repeat changes nothing.
    pub(super) fn accept_usage(&mut self, host: &HostId, usage: &UsageEvidence, now: Timestamp) {
        let key = (host.clone(), usage.boot_id.clone(), usage.seq);
        if self.meter_events.contains_key(&key) {
            return;
        }
        self.meter_events.insert(key, usage.clone());
        for segment in self.segments.values_mut().filter(|segment| evidence::names(usage, segment)) {
            segment.apply(usage, now).expect("evidence of an honest host within its time");
        }
    }

    /// Segments of a tenant that may still cost something.
    fn that_cost(&self, tenant: usize) -> Vec<Segment> {
        let tenant_id = &self.ledgers[tenant].tenant_id;
        let mut of: Vec<Segment> = self
            .segments
            .values()
            .filter(|segment| segment.terms().tenant_id == *tenant_id)
            .cloned()
            .collect();
        of.sort_by_key(|segment| (segment.opened_at(), segment.id().clone()));
        of
    }

    /// One tick of the settling worker.
    pub fn settle_all(&mut self) {
        for tenant in 0..self.ledgers.len() {
            let now = self.now();
            self.settle(tenant, now);
            self.rearm.insert(tenant);
            self.rearm_changed(now);
        }
    }

    /// One tick of the exhausting worker.
    pub fn exhaust(&mut self) {
        let now = self.now();
        let due = self.paid.iter().filter(|(id, paid)| {
            paid.until <= now && self.segments.get(id).is_some_and(|segment| segment.ended_at().is_none())
        });
        let owners: Vec<_> = due.map(|(id, _)| self.segments[id].terms().tenant_id.clone()).collect();
        for tenant in 0..self.ledgers.len() {
            if owners.contains(&self.ledgers[tenant].tenant_id) {
                self.settle(tenant, now);
                self.rearm.insert(tenant);
            }
        }
        self.rearm_changed(now);
    }

    /// The next instant at which some open segment's money ends.
    pub fn next_exhaustion(&self) -> Option<Timestamp> {
        let open = self
            .paid
            .iter()
            .filter(|(id, _)| self.segments.get(id).is_some_and(|segment| segment.ended_at().is_none()));
        open.map(|(_, paid)| paid.until).min()
    }

    /// Brings a tenant's ledger up to what is proven and what time has ended.
    pub(super) fn settle(&mut self, tenant: usize, now: Timestamp) {
        for _ in 0..ROUNDS_MAX {
            let (due, funds) = (self.that_cost(tenant), self.ledgers[tenant].funds());
            let due = catch_up(due, &self.book, &funds, now).expect("what is stored can be settled");
            let mut ended = None;
            for step in due.steps {
                ended = self.carry_out(tenant, step, now);
            }
            let Some(until) = ended else { return };
            audit::the_money_ends_there(self, tenant, &funds, until, now);
            self.stop_all(tenant, until, now);
        }
        panic!("what the money no longer pays for does not end");
    }

    fn carry_out(&mut self, tenant: usize, step: Step, now: Timestamp) -> Option<Timestamp> {
        match step {
            Step::Split { ended, begun } => {
                self.save(ended);
                self.insert(begun);
                self.rearm.insert(tenant);
            }
            Step::Settle { segment, plan } => {
                assert_eq!(
                    self.segments[segment.id()].settled(),
                    plan.before,
                    "a plan is carried out in order"
                );
                self.post(tenant, &plan, now);
                self.save(segment);
            }
            Step::Expire { before, transfer } => {
                audit::nothing_proven_was_left_to_an_expired_grant(self, tenant, &before);
                // A pending hold keeps it until the hold is resolved.
                if self.ledgers[tenant].post(&transfer).is_ok() {
                    self.ledgers[tenant].drain(before.id());
                }
            }
            Step::Exhaust { at } => return Some(at),
        }
        None
    }

    fn post(&mut self, tenant: usize, plan: &Settlement, now: Timestamp) {
        let ledger = &mut self.ledgers[tenant];
        for charge in &plan.charges {
            audit::draws_in_order(&ledger.grants, &charge.draw, &charge.transfer, now);
            ledger.post(&charge.transfer).expect("M3: what is settled is covered");
            ledger.draw(&charge.draw);
        }
    }

    /// The money of a tenant ended at `until`: so does everything that runs.
    fn stop_all(&mut self, tenant: usize, until: Timestamp, now: Timestamp) {
        let tenant_id = self.ledgers[tenant].tenant_id.clone();
        let open = self.segments.values().filter(|segment| {
            segment.state() == SegmentState::Open && segment.terms().tenant_id == tenant_id
        });
        let instances: Vec<InstanceId> = open.map(|segment| segment.terms().instance_id.clone()).collect();
        for id in instances {
            let settled = self.settled_of(&id);
            let wish = &mut self.rentals.get_mut(&id).expect("what is billed exists").instance.wish;
            if wish.state == DesiredState::Running {
                wish.state = DesiredState::Stopped;
                wish.reason = ReasonCode::BalanceExhausted;
                wish.since = until;
            }
            self.facts.push(Fact::Ended { instance_id: id.clone(), at: until, settled });
            self.converge(&id, &HostView::default(), None, now);
        }
    }

    /// Before a commit: the runway of every tenant whose burn the transaction changed.
    pub(super) fn rearm_changed(&mut self, now: Timestamp) {
        while let Some(tenant) = self.rearm.pop_first() {
            let of = self.that_cost(tenant);
            let runway = forecast(&of, &self.book, &self.ledgers[tenant].funds(), now).expect("amounts fit");
            let until = match runway {
                Runway::Until(until) => until,
                Runway::Unlimited => now.plus_seconds(HORIZON_SECONDS),
            };
            for segment in of.iter().filter(|segment| segment.state() == SegmentState::Open) {
                let mono_ms = segment.run_until(until).mono_ms;
                let known = self.paid.insert(segment.id().clone(), Paid { mono_ms, until });
                let told = known.is_some_and(|known| known.mono_ms == mono_ms);
                let host = self.rentals[&segment.terms().instance_id].host_id.clone();
                if let Some(host) = host.filter(|_| !told) {
                    self.publish(&host);
                }
            }
        }
    }

    /// What holds keep back and grants still have, for the audit.
    pub fn wallet_available(&self, tenant: usize) -> i64 {
        let ledger = &self.ledgers[tenant];
        let posted = [AccountKind::WalletCash, AccountKind::WalletPromo]
            .map(|kind| ledger.wallets[&kind].0.posted().get());
        posted.iter().sum()
    }

    pub(super) fn funds(&self, tenant: usize) -> Funds {
        self.ledgers[tenant].funds()
    }
}
