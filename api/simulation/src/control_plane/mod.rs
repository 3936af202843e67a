//! The control plane over a store in memory: the transactions of the real one, in its order, around the same decisions.
//!
//! Everything that decides is `tarn-provisioner`'s and `tarn-billing`'s; what is here stands for `app/` and the tables: it reads,
//! asks, and writes what it was told. The constraints of the schema (one open segment per card and per instance, no overlap, no wallet
//! below what is held) are asserted where the database would refuse: a decision that runs into one is a fault.

mod instances;
mod metering;
mod money;
mod reports;

use std::collections::{BTreeMap, BTreeSet};

use tarn_billing::money::Micros;
use tarn_billing::price::PriceBook;
use tarn_billing::rate::Rate;
use tarn_billing::segment::Segment;
use tarn_protocol::control::UsageEvidence;
use tarn_protocol::ids::{GpuUuid, HostId, InstanceId, LeaseId, OfferId, SegmentId};
use tarn_protocol::units::{BootId, MonoMillis, Sequence, Timestamp};
use tarn_provisioner::reconcile::{Instance, KnownBoot};
use tarn_provisioner::snapshot::HostSnapshot;

use crate::facts::Fact;
use crate::script::Setup;

pub use money::Ledger;

/// The wall clock's reading when true time begins. Not a whole millisecond, so that no rounding is hidden.
pub const EPOCH: i64 = 1_800_000_000_123_456;

/// An instance with what the store knows of it.
#[derive(Debug)]
pub struct Rental {
    pub number: u64,
    pub tenant: usize,
    pub offer: usize,
    pub instance: Instance,
    pub host_id: Option<HostId>,
    pub leased_at: Timestamp,
}

#[derive(Debug)]
pub struct HostRow {
    pub boots: Vec<KnownBoot>,
    pub reported_at: Option<Timestamp>,
    pub unreachable_since: Option<Timestamp>,
    pub revision: i64,
    pub evictions: BTreeMap<InstanceId, tarn_protocol::units::Generation>,
}

/// What a host was told of an open segment: until when it is paid, on its clock and on ours.
#[derive(Debug, Clone, Copy)]
pub struct Paid {
    pub mono_ms: MonoMillis,
    pub until: Timestamp,
}

#[derive(Debug)]
pub struct ControlPlane {
    last: Timestamp,
    /// True time, and how far the wall clock is off.
    pub time_ms: i64,
    pub wall_off_ms: i64,
    /// The wall clock was set back, so that ours stood still, or reports came very late: a late one may seem to be of a clone.
    pub misled: bool,
    pub setup: Setup,
    pub book: PriceBook,
    pub ledgers: Vec<Ledger>,
    pub rentals: BTreeMap<InstanceId, Rental>,
    pub order: Vec<InstanceId>,
    pub hosts: BTreeMap<HostId, HostRow>,
    /// Cards with their links, and the leases on them.
    pub fleet: Vec<HostSnapshot>,
    pub segments: BTreeMap<SegmentId, Segment>,
    pub paid: BTreeMap<SegmentId, Paid>,
    pub meter_events: BTreeMap<(HostId, BootId, Sequence), UsageEvidence>,
    pub facts: Vec<Fact>,
    /// Tenants whose burn changed in this transaction.
    rearm: BTreeSet<usize>,
    /// Hosts that have news to pull.
    pub news: BTreeSet<HostId>,
    ids: u128,
}

impl ControlPlane {
    pub fn new(setup: &Setup, fleet: Vec<HostSnapshot>) -> Self {
        let hosts = fleet.iter().map(|host| {
            let row = HostRow {
                boots: Vec::new(),
                reported_at: None,
                unreachable_since: None,
                revision: 0,
                evictions: BTreeMap::new(),
            };
            (host.id.clone(), row)
        });
        let mut control_plane = Self {
            last: Timestamp::from_micros(0),
            time_ms: 0,
            wall_off_ms: 0,
            misled: false,
            setup: setup.clone(),
            book: PriceBook::default(),
            ledgers: Vec::new(),
            rentals: BTreeMap::new(),
            order: Vec::new(),
            hosts: hosts.collect(),
            fleet,
            segments: BTreeMap::new(),
            paid: BTreeMap::new(),
            meter_events: BTreeMap::new(),
            facts: Vec::new(),
            rearm: BTreeSet::new(),
            news: BTreeSet::new(),
            ids: 0,
        };
        let now = control_plane.now();
        for (number, (_, hourly)) in setup.offers.iter().enumerate() {
            control_plane.append_price(number, *hourly, now, now);
        }
        for tenant in 0..setup.tenants {
            control_plane.ledgers.push(Ledger::new(tenant, now));
            control_plane.welcome(tenant, now);
        }
        control_plane
    }

    /// The clock's next reading: UTC, never the same twice, never back.
    pub fn now(&mut self) -> Timestamp {
        let wall = Timestamp::from_micros(EPOCH + (self.time_ms + self.wall_off_ms) * 1000);
        self.last = Timestamp::issued(self.last, wall);
        self.last
    }

    /// The clock's last reading.
    pub const fn last(&self) -> Timestamp {
        self.last
    }

    fn bits(&mut self) -> u128 {
        self.ids += 1;
        self.ids
    }

    pub fn price(&mut self, offer: usize, hourly: i64, in_ms: i64) {
        let now = self.now();
        self.append_price(offer, hourly, now.plus_micros(in_ms * 1000), now);
    }

    fn append_price(&mut self, offer: usize, hourly: i64, from: Timestamp, now: Timestamp) {
        let rate = Rate::per_hour(Micros::new(hourly)).expect("a price of the script");
        // A price before the last announced one is refused, as it is to an operator.
        if let Ok(price) = self.book.append(&offer_id(offer), rate, from, now) {
            self.facts.push(Fact::Priced { offer, hourly, from: price.effective_from });
        }
    }
}

pub fn offer_id(offer: usize) -> OfferId {
    format!("offer-{offer}").parse().expect("an offer's id")
}

fn lease_cards(fleet: &mut [HostSnapshot], cards: &[GpuUuid], lease: Option<&LeaseId>) {
    for gpu in fleet.iter_mut().flat_map(|host| &mut host.gpus).filter(|gpu| cards.contains(&gpu.uuid)) {
        assert!(lease.is_none() || gpu.lease.is_none(), "a card is leased twice");
        gpu.lease = lease.cloned();
    }
}
