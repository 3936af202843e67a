//! What the worlds are made of: a seeded source of choices, ids, prices and runs of instances.

use tarn_billing::grant::{Grant, GrantKind, GrantTerms};
use tarn_billing::meter::Meter;
use tarn_billing::money::Micros;
use tarn_billing::price::Price;
use tarn_billing::rate::Rate;
use tarn_billing::segment::{Anchor, Segment, SegmentTerms};
use tarn_protocol::control::UsageEvidence;
use tarn_protocol::ids::{GpuUuid, GrantId, InstanceId, OfferId, SegmentId, TenantId};
use tarn_protocol::units::{BootId, Generation, MonoMillis, Sequence, Timestamp};

/// Every instant of a world is a multiple of this many milliseconds after its start, so that oracles can walk tick by tick.
pub const TICK_MS: i64 = 50;

/// `SplitMix64`.
#[derive(Debug)]
pub struct Choices(u64);

impl Choices {
    pub fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// In `[low, high)`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = u64::try_from(high - low).unwrap();
        low + i64::try_from(self.next() % span).unwrap()
    }

    pub fn percent(&mut self, chance: i64) -> bool {
        self.between(0, 100) < chance
    }

    /// A whole number of ticks in `[low, high)` milliseconds.
    pub fn ticks(&mut self, low: i64, high: i64) -> i64 {
        self.between(low / TICK_MS, high / TICK_MS) * TICK_MS
    }

    pub fn one_of<T: Copy, const N: usize>(&mut self, items: [T; N]) -> T {
        let at = self.between(0, i64::try_from(N).unwrap());
        items[usize::try_from(at).unwrap()]
    }

    /// A price: round, prime, tiny, large or free.
    pub fn rate(&mut self) -> Rate {
        let hourly = self.one_of([2_400_000, 7_777_777, 1, 3_599, 987_654_321, 50_000_000, 0, 3_600]);
        Rate::per_hour(Micros::new(hourly)).unwrap()
    }
}

/// `millis` after the start of the world.
pub fn at(millis: i64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_123_456 + millis * 1000)
}

pub fn tenant() -> TenantId {
    TenantId::new(at(0), 1)
}

pub fn offer(number: i64) -> OfferId {
    format!("offer-{number}").parse().unwrap()
}

pub fn card(number: u8) -> GpuUuid {
    GpuUuid::from_bytes([number; 16])
}

pub fn grant(number: u128, kind: GrantKind, amount: i64, granted_ms: i64, expires_ms: Option<i64>) -> Grant {
    Grant::new(GrantTerms {
        id: GrantId::new(at(granted_ms), number),
        tenant_id: tenant(),
        kind,
        priority: 0,
        amount: Micros::new(amount),
        granted_at: at(granted_ms),
        expires_at: expires_ms.map(at),
    })
    .unwrap()
}

/// One run of one instance on one boot of one host.
#[derive(Debug, Clone)]
pub struct Run {
    pub instance: u128,
    pub generation: i64,
    pub offer: i64,
    pub primary: u8,
    /// Ready, in milliseconds of the world.
    pub ready: i64,
    /// Its host's clock shows `world + skew` milliseconds.
    pub skew: i64,
}

impl Run {
    pub fn mono(&self, millis: i64) -> MonoMillis {
        MonoMillis::new(u64::try_from(millis + self.skew).unwrap())
    }

    fn boot_id(&self) -> BootId {
        BootId::new(format!("boot-{}-{}", self.instance, self.generation))
    }

    /// The segment that a report received at `received` opens.
    pub fn open(&self, price: &Price, received: i64) -> Segment {
        let (report, ready) = (self.mono(received), self.mono(self.ready));
        let anchor = Anchor::from_report(at(received), self.boot_id(), report, ready, at(0));
        assert_eq!(anchor.at, at(self.ready));
        Segment::open(SegmentTerms {
            id: SegmentId::new(
                at(self.ready),
                self.instance * 100 + u128::try_from(self.generation).unwrap(),
            ),
            tenant_id: tenant(),
            instance_id: InstanceId::new(at(0), self.instance),
            generation: Generation::new(self.generation),
            offer_id: offer(self.offer),
            meter: Meter::Card(card(self.primary)),
            price_version: price.version,
            rate: price.rate,
            anchor,
        })
    }

    pub fn evidence(&self, seq: u64, from: i64, to: i64, excused: i64) -> UsageEvidence {
        UsageEvidence {
            seq: Sequence::new(seq),
            boot_id: self.boot_id(),
            instance_id: InstanceId::new(at(0), self.instance),
            generation: Generation::new(self.generation),
            primary: card(self.primary),
            from_mono_ms: self.mono(from),
            to_mono_ms: self.mono(to),
            excused_ms: u64::try_from(excused).unwrap(),
        }
    }
}

/// The disk of instance 1, `gib` in size, there from `opened` on.
pub fn disk(gib: u32, price: &Price, opened: i64) -> Segment {
    let meter = Meter::Disk { gib };
    Segment::open(SegmentTerms {
        id: SegmentId::new(at(opened), 99),
        tenant_id: tenant(),
        instance_id: InstanceId::new(at(0), 1),
        generation: Generation::new(1),
        offer_id: price.offer_id.clone(),
        rate: meter.rate_at(price.rate).unwrap(),
        meter,
        price_version: price.version,
        anchor: Anchor::of_control_plane(at(opened)),
    })
}
