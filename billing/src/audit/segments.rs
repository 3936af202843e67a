//! Segments: what the evidence proves, what that costs, and the transfers that charged it.
//!
//! The charge of a segment is replayed transfer by transfer: the id of each says at which second it begins, so before it exactly
//! `floor(rate × first / 3600)` must have been posted, and after the last one exactly the floor of all settled seconds. Whatever the
//! instants of settlement were, the sum is the same (M4).

use std::collections::BTreeMap;

use tarn_protocol::ids::{GrantId, HostId, OfferId, SegmentId, TenantId, TransferId};
use tarn_protocol::units::Timestamp;

use super::difference::{Difference, Rule, same, shown};
use super::spans::{Spans, millis_before};
use crate::coverage::{Coverage, INTERVALS_MAX};
use crate::evidence::LATE_MAX_MICROS;
use crate::meter::Meter;
use crate::money::Micros;
use crate::price::{Price, PriceBook};
use crate::rate::Seconds;
use crate::segment::{CloseReason, SegmentTerms, Settled};
use crate::transfer::{debt_id, settlement_id};

/// The part of a millisecond by which an opening may lie after the report that showed it.
const MILLI: i64 = 1000;

/// A segment as it is stored, and what of other rows it must agree with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFact {
    pub terms: SegmentTerms,
    pub covered: Coverage,
    pub ended_at: Option<Timestamp>,
    pub close_reason: Option<CloseReason>,
    pub settled: Settled,
    /// Of the last change: no settlement is younger.
    pub updated_at: Timestamp,
    /// Where its run was leased.
    pub lease_host: Option<HostId>,
    /// Whose instance it is.
    pub instance_tenant: Option<TenantId>,
    /// A price change ended a segment of the same run at its start, and its proof moved here.
    pub continues: bool,
}

/// Evidence that was counted for the run of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvidenceFact {
    pub segment_id: SegmentId,
    pub host_id: HostId,
    pub seq: u64,
    pub from_ms: u64,
    pub to_ms: u64,
    pub excused_ms: u64,
    pub received_at: Timestamp,
}

/// A transfer that charged a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageFact {
    pub id: TransferId,
    pub segment_id: SegmentId,
    pub tenant_id: Option<TenantId>,
    pub grant_id: Option<GrantId>,
    pub amount: Micros,
}

#[derive(Debug)]
struct Replay {
    fact: SegmentFact,
    spans: Spans,
    /// Second of the settlement whose transfers come now.
    first: Option<i64>,
    posted: i128,
}

/// A window of segments: all of them, then the evidence of their runs, then their usage transfers in order of id, those of one
/// segment together; then [`Segments::end_of_segments`].
#[derive(Debug, Default)]
pub struct Segments {
    book: PriceBook,
    window: BTreeMap<SegmentId, Replay>,
    pub(super) seen: u64,
    pub(super) evidence: u64,
    pub(super) usages: u64,
    pub(super) settled_seconds: i128,
    pub(super) settled_micros: i128,
    pub(super) unsettled_seconds: i128,
}

impl Segments {
    pub fn new(prices: impl IntoIterator<Item = Price>) -> Result<Self, Difference> {
        let prices: Vec<Price> = prices.into_iter().collect();
        let book = PriceBook::from_stored(prices).map_err(|broken| {
            Difference::new(Rule::PriceBook, "price book", "versions", "growing in number and time", broken)
        })?;
        Ok(Self { book, ..Self::default() })
    }

    pub fn segment(&mut self, fact: SegmentFact) -> Result<(), Difference> {
        self.priced(&fact)?;
        let id = fact.terms.id.clone();
        let row = || format!("segment {id}");
        let (ended, reason) = (fact.ended_at, fact.close_reason);
        same(Rule::Evidence, row, "an end has its reason", ended.is_some(), reason.is_some())?;
        if ended.is_some_and(|ended_at| ended_at < fact.terms.anchor.at) {
            let found = shown(ended.as_ref());
            return Err(Difference::new(Rule::Evidence, row(), "end", "not before its start", found));
        }
        let tenant = Some(&fact.terms.tenant_id);
        let instance_tenant = fact.instance_tenant.as_ref();
        same(Rule::Evidence, row, "tenant of its instance", shown(tenant), shown(instance_tenant))?;
        self.seen += 1;
        self.settled_seconds += i128::from(fact.settled.seconds.get());
        self.settled_micros += i128::from(fact.settled.micros.get());
        self.window.insert(id.clone(), Replay { fact, spans: Spans::default(), first: None, posted: 0 });
        Ok(())
    }

    pub fn evidence(&mut self, fact: &EvidenceFact) -> Result<(), Difference> {
        self.evidence += 1;
        let Some(replay) = self.window.get_mut(&fact.segment_id) else {
            let row = format!("evidence {} of host {}", fact.seq, fact.host_id);
            return Err(Difference::new(
                Rule::Evidence,
                row,
                "segment",
                "one of this window",
                &fact.segment_id,
            ));
        };
        replay.prove(fact)
    }

    pub fn usage(&mut self, fact: &UsageFact) -> Result<(), Difference> {
        self.usages += 1;
        let Some(replay) = self.window.get_mut(&fact.segment_id) else {
            let row = format!("transfer {}", fact.id);
            return Err(Difference::new(Rule::Charge, row, "segment", "one that is there", &fact.segment_id));
        };
        replay.charge(fact)
    }

    pub fn end_of_segments(&mut self) -> Result<(), Difference> {
        for (_, mut replay) in std::mem::take(&mut self.window) {
            let newer = self.book.after(&replay.fact.terms.offer_id, replay.fact.terms.price_version).next();
            let next_price = newer.map(|price| price.effective_from);
            self.unsettled_seconds += replay.close(next_price)?;
        }
        Ok(())
    }

    /// The segment bills at a price of the book that was in force when it opened.
    fn priced(&self, fact: &SegmentFact) -> Result<(), Difference> {
        let terms = &fact.terms;
        let row = || format!("segment {}", terms.id);
        let known = |offer: &OfferId| self.book.at(offer, terms.anchor.at);
        let Some(price) = known(&terms.offer_id) else {
            let found = format!("version {} of {}", terms.price_version, terms.offer_id);
            return Err(Difference::new(
                Rule::SegmentPrice,
                row(),
                "price",
                "one in force when it opened",
                found,
            ));
        };
        same(
            Rule::SegmentPrice,
            row,
            "price version in force when it opened",
            price.version,
            terms.price_version,
        )?;
        let whole = i128::from(price.rate.hourly().get()) * i128::from(terms.meter.quantity());
        same(Rule::SegmentPrice, row, "rate per hour", whole, i128::from(terms.rate.hourly().get()))
    }
}

impl Replay {
    fn row(&self) -> String {
        format!("segment {}", self.fact.terms.id)
    }

    /// Where the segment ends on the host's clock, seen from `until`.
    fn window_end(&self, until: Timestamp) -> u64 {
        let until = self.fact.ended_at.map_or(until, |ended_at| ended_at.min(until));
        let elapsed_ms = (until.micros_since(self.fact.terms.anchor.at) / MILLI).max(0);
        self.fact.terms.anchor.mono_ms.get().saturating_add(elapsed_ms.unsigned_abs())
    }

    fn prove(&mut self, fact: &EvidenceFact) -> Result<(), Difference> {
        let row = || format!("evidence {} of host {}", fact.seq, fact.host_id);
        let (host, leased) = (shown(Some(&fact.host_id)), shown(self.fact.lease_host.as_ref()));
        same(Rule::Evidence, row, "host that the run was leased on", leased, host)?;
        let Some(worked_to) = fact.to_ms.checked_sub(fact.excused_ms).filter(|to| *to >= fact.from_ms) else {
            return Ok(()); // excuses more than its interval: proves nothing
        };
        let late = self.fact.ended_at.is_some_and(|end| fact.received_at.micros_since(end) > LATE_MAX_MICROS);
        // A run that went on after a fault of ours has a segment that older evidence never counted on.
        let before = fact.received_at.micros_since(self.fact.terms.anchor.at) < -MILLI;
        if late || (before && !self.fact.continues) {
            return Ok(());
        }
        let from = fact.from_ms.max(self.fact.terms.anchor.mono_ms.get());
        let to = self.fact.ended_at.map_or(worked_to, |ended_at| worked_to.min(self.window_end(ended_at)));
        self.spans.add(from, to);
        Ok(())
    }

    fn charge(&mut self, fact: &UsageFact) -> Result<(), Difference> {
        let row = || format!("transfer {}", fact.id);
        let terms = &self.fact.terms;
        let tenant = shown(fact.tenant_id.as_ref());
        same(Rule::Charge, row, "tenant of its segment", terms.tenant_id.to_string(), tenant)?;
        let first = first_second(&fact.id, terms.anchor.at);
        let bucket = fact.grant_id.as_ref();
        // Without a bucket it was charged to what the tenant owes.
        let id = Seconds::new(first).ok().map(|second| match bucket {
            Some(bucket) => settlement_id(&terms.id, terms.anchor.at, second, bucket),
            None => debt_id(&terms.id, terms.anchor.at, second),
        });
        if id.as_ref() != Some(&fact.id) {
            let found = format!("another than {} for second {first}", shown(id.as_ref()));
            return Err(Difference::new(
                Rule::Charge,
                row(),
                "id",
                "of segment, first second and grant",
                found,
            ));
        }
        if self.first != Some(first) {
            let owed = charged(self.fact.terms.rate.hourly(), first);
            same(Rule::Charge, row, "micros charged for the seconds before it", owed, self.posted)?;
            self.first = Some(first);
        }
        self.posted += i128::from(fact.amount.get());
        Ok(())
    }

    /// The segment against its evidence, its price and its transfers; how many proven seconds are not settled.
    fn close(&mut self, next_price: Option<Timestamp>) -> Result<i128, Difference> {
        self.covered_by_evidence()?;
        let covered = self.fact.covered.intervals();
        let proven = |until| i128::from(millis_before(covered, self.window_end(until)) / 1000);
        let settled = i128::from(self.fact.settled.seconds.get());
        let seconds = proven(self.fact.updated_at);
        if settled > seconds {
            let most = format!("at most {seconds}");
            return Err(Difference::new(Rule::Evidence, self.row(), "settled seconds", most, settled));
        }
        if let Some(at) = next_price.filter(|at| *at > self.fact.terms.anchor.at)
            && settled > proven(at)
        {
            let most = format!("at most {} before the next price", proven(at));
            return Err(Difference::new(Rule::SegmentPrice, self.row(), "settled seconds", most, settled));
        }
        let owed = charged(self.fact.terms.rate.hourly(), self.fact.settled.seconds.get());
        let row = || self.row();
        same(Rule::Charge, row, "micros settled", owed, i128::from(self.fact.settled.micros.get()))?;
        same(Rule::Charge, row, "micros that its transfers charged", owed, self.posted)?;
        // Free seconds wait for nobody's money.
        let free = self.fact.terms.rate.hourly() == Micros::ZERO;
        Ok(if free { 0 } else { seconds - settled })
    }

    fn covered_by_evidence(&mut self) -> Result<(), Difference> {
        if let Meter::Disk { .. } = self.fact.terms.meter {
            // The control plane itself witnessed its beginning and its end: every moment between is proven.
            self.spans.add(0, u64::MAX);
        }
        let derived = self.spans.union();
        let stored = self.fact.covered.intervals();
        if derived == stored {
            return Ok(());
        }
        // Evidence that would have made one more interval than a segment keeps was refused, so less may be stored.
        let full = derived.len().max(stored.len()) >= INTERVALS_MAX;
        let inside = |(from, to): &(u64, u64)| derived.iter().any(|(low, high)| low <= from && to <= high);
        if full && stored.iter().all(inside) {
            return Ok(());
        }
        let shown = |spans: Option<&(u64, u64)>| {
            spans.map_or_else(|| "no interval".to_owned(), |(from, to)| format!("[{from}, {to}) ms"))
        };
        let place = derived.iter().zip(stored).take_while(|(one, other)| one == other).count();
        let (wanted, found) = (shown(derived.get(place)), shown(stored.get(place)));
        Err(Difference::new(Rule::Evidence, self.row(), "proven interval", wanted, found))
    }
}

/// `floor(rate × seconds / 3600)`, on its own.
fn charged(hourly: Micros, seconds: i64) -> i128 {
    i128::from(hourly.get()) * i128::from(seconds) / 3600
}

/// The second at which a settlement began, from the millisecond in its id.
fn first_second(id: &TransferId, opened_at: Timestamp) -> i64 {
    let since = id.created_at().micros_since(opened_at);
    // The id cut the instant to a millisecond; whole seconds lie less than that above it.
    (since + MILLI - 1).div_euclid(1_000_000)
}
