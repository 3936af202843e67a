//! Settlement: which transfers bring the ledger up to what a segment has proven.
//!
//! A plan charges `charged(rate, confirmed) − settled` and says which seconds that pays for. It draws whole seconds only and never
//! more than the funds cover, so the ledger cannot pass below zero; seconds that the money does not reach are reported as `unpaid`.
//! The store commits a plan in one transaction with three guards: the segment row still shows `before`, each grant row still shows
//! `draw.before.remaining()`, and the transfer ids, which follow from segment, first second and grant, are new. A plan that lost a
//! race changes no row; the next tick makes another.
//!
//! The instant of a plan is both how far seconds are settled and when grants are drawn, and it may lie in the past. So when a grant
//! has expired ([`crate::funds::Funds::next_expiry`]), settle at one microsecond before that instant, post [`Grant::expiry`], then go
//! on; and when the money has ended, close and settle at the computed instant. Settle before a grant is given too, so that no second
//! draws on money that came after it. Seconds proven only after that draw on what is there then: the total is the same, the bucket
//! may differ.
//!
//! [`Grant::expiry`]: crate::grant::Grant::expiry

use tarn_protocol::ids::SegmentId;
use tarn_protocol::units::Timestamp;

use crate::account::{Account, AccountKind};
use crate::funds::{Draw, Funds, Shortfall};
use crate::money::{Micros, OutOfRange};
use crate::price::{Price, PriceBook};
use crate::rate::Seconds;
use crate::segment::{Segment, Settled};
use crate::transfer::{InvalidTransfer, Subject, Transfer, TransferKind, debt_id, settlement_id};

/// One transfer of a settlement and the draw on the grant that pays it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    pub transfer: Transfer,
    pub draw: Draw,
}

/// A plan for one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    pub segment_id: SegmentId,
    /// What the row must still show.
    pub before: Settled,
    pub after: Settled,
    /// Confirmed by the instant of the plan.
    pub confirmed: Seconds,
    /// In draw order; empty when the seconds cost nothing yet.
    pub charges: Vec<Charge>,
    /// Confirmed seconds that the funds do not reach.
    pub unpaid: Seconds,
    pub funds_after: Funds,
}

impl Settlement {
    /// Whether there is anything to commit.
    pub fn changes(&self) -> bool {
        self.after != self.before
    }

    pub fn amount(&self) -> Micros {
        Micros::new(self.after.micros.get() - self.before.micros.get())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettleError {
    /// A newer price is in force inside the segment: split it first, then settle both parts.
    #[error("price {} of {} is in force inside segment {segment_id}", price.version, price.offer_id)]
    PriceChanged { segment_id: SegmentId, price: Box<Price> },
    #[error(transparent)]
    Transfer(#[from] InvalidTransfer),
    #[error(transparent)]
    Shortfall(#[from] Shortfall),
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

/// The newer price that is due inside `segment` by `now`, if any.
pub fn due_price<'book>(segment: &Segment, book: &'book PriceBook, now: Timestamp) -> Option<&'book Price> {
    let mut newer = book.after(&segment.terms().offer_id, segment.terms().price_version);
    newer.find(|price| segment.changes_at(price).is_some_and(|at| at < now))
}

/// Plans the settlement of `segment` from `funds` at `at`.
pub fn settle(
    segment: &Segment,
    book: &PriceBook,
    funds: &Funds,
    at: Timestamp,
) -> Result<Settlement, SettleError> {
    let terms = segment.terms();
    if let Some(price) = due_price(segment, book, at) {
        return Err(SettleError::PriceChanged {
            segment_id: terms.id.clone(),
            price: Box::new(price.clone()),
        });
    }
    let before = segment.settled();
    let confirmed = segment.confirmed(at).max(before.seconds);
    let budget = before.micros.checked_add(funds.available(at))?;
    let affordable = terms.rate.last_affordable(budget).unwrap_or(before.seconds);
    let seconds = confirmed.min(affordable).max(before.seconds);
    let after = Settled { seconds, micros: terms.rate.charged(seconds) };
    let (draws, funds_after) = funds.draw(after.micros.checked_sub(before.micros)?, at)?;
    let charges = draws.into_iter().map(|draw| charge(segment, before.seconds, draw, at));
    Ok(Settlement {
        segment_id: terms.id.clone(),
        before,
        after,
        confirmed,
        charges: charges.collect::<Result<_, _>>()?,
        unpaid: confirmed.since(seconds),
        funds_after,
    })
}

/// Plans the settlement of several segments of one tenant, in the order given, each from what the one before left.
pub fn settle_all<'segment>(
    segments: impl IntoIterator<Item = &'segment Segment>,
    book: &PriceBook,
    funds: &Funds,
    at: Timestamp,
) -> Result<Vec<Settlement>, SettleError> {
    let mut left = funds.clone();
    let plan = |segment| {
        let settlement = settle(segment, book, &left, at)?;
        left = settlement.funds_after.clone();
        Ok(settlement)
    };
    segments.into_iter().map(plan).collect()
}

/// Most seconds of one ended segment that its tenant owes when no money is left: the longest that a stop may take. What is proven
/// beyond that is charged to nobody, so a debt never passes burn × stop latency (M3).
pub const OWED_SECONDS_MAX: i64 = 60;

/// What becomes of seconds that no money reaches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beyond {
    pub before: Settled,
    pub after: Settled,
    /// Onto the receivable; `None` when the seconds owed cost nothing, or none are owed.
    pub debt: Option<Transfer>,
    pub owed: Seconds,
    pub waived: Seconds,
}

/// Plans the end of `unpaid` seconds of an ended segment, of which `owed_before` are on the receivable already. `segment` is the one
/// that [`settle`] left behind.
pub fn beyond(
    segment: &Segment,
    unpaid: Seconds,
    owed_before: Seconds,
    at: Timestamp,
) -> Result<Beyond, SettleError> {
    let terms = segment.terms();
    let before = segment.settled();
    let room = Seconds::new(OWED_SECONDS_MAX).unwrap_or(Seconds::ZERO).since(owed_before);
    let owed = unpaid.min(room);
    let seconds = Seconds::new(before.seconds.get() + owed.get()).unwrap_or(Seconds::MAX);
    let after = Settled { seconds, micros: terms.rate.charged(seconds) };
    let Settled { micros: settled, .. } = before;
    let amount = after.micros.checked_sub(settled)?;
    let debt = if amount > Micros::ZERO {
        let accounts = (
            Account::new(AccountKind::Receivable, Some(&terms.tenant_id))
                .expect("a tenant kind with its tenant"),
            Account::new(terms.meter.item().revenue(), None).expect("revenue is a system account"),
        );
        let subject = Subject { segment_id: Some(segment.id().clone()), ..Subject::default() };
        let id = debt_id(segment.id(), segment.opened_at(), before.seconds);
        Some(Transfer::new(id, TransferKind::Usage, accounts, amount, subject, at)?)
    } else {
        None
    };
    Ok(Beyond { before, after, debt, owed, waived: unpaid.since(owed) })
}

fn charge(segment: &Segment, first: Seconds, draw: Draw, at: Timestamp) -> Result<Charge, InvalidTransfer> {
    let revenue =
        Account::new(segment.terms().meter.item().revenue(), None).expect("revenue is a system account");
    let id = settlement_id(segment.id(), segment.opened_at(), first, draw.grant_id());
    let subject = Subject { segment_id: Some(segment.id().clone()), ..draw.before.subject() };
    let accounts = (draw.before.wallet(), revenue);
    let transfer = Transfer::new(id, TransferKind::Usage, accounts, draw.amount, subject, at)?;
    Ok(Charge { transfer, draw })
}
