//! Exhaustion: the instant at which a tenant's money ends.
//!
//! For one segment the last affordable second is `floor(((settled + B + 1) × 3600 − 1) / rate)` ([`Rate::last_affordable`]). Several
//! segments tick at their own phases and prices, grants expire and prices change on the way, so the general answer is a binary
//! search over elapsed milliseconds on a spend that only grows. Both agree where both apply.
//!
//! The answer is the instant at which the last affordable second is complete. The caller closes the segments there, whatever the
//! clock says by then: how long a stop takes is Tarn's cost. Compute it again on every change of balance, grant, hold, price, start
//! or stop; nothing polls.
//!
//! Time since the newest evidence is taken as running, since its proof is on the way; older gaps are not. Should such a gap be proven
//! late, settlement still draws no more than there is.

use tarn_protocol::units::Timestamp;

use crate::funds::Funds;
use crate::money::{Micros, OutOfRange};
use crate::price::PriceBook;
use crate::rate::{Rate, Seconds};
use crate::segment::{Segment, SegmentState, Settled, signed};

/// How far ahead a forecast looks: ten years.
pub const HORIZON_SECONDS: i64 = 10 * 366 * 24 * 3600;
const HORIZON_MS: i64 = HORIZON_SECONDS * 1000;
const MICROS_PER_MILLI: i64 = 1000;

/// Until when a tenant's open segments are paid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runway {
    /// Nothing runs, or the money outlasts [`HORIZON_SECONDS`].
    Unlimited,
    /// Close every open segment at this instant, with `BalanceExhausted`; it may be in the past.
    Until(Timestamp),
}

/// One price's part of one segment, in milliseconds relative to `now`.
#[derive(Debug, Clone, Copy)]
struct Piece {
    rate: Rate,
    settled: Settled,
    /// Milliseconds proven or expected at `origin`.
    base: i64,
    origin: i64,
    /// Where a known price change ends this piece.
    until: i64,
}

impl Piece {
    fn millis(&self, at: i64) -> i64 {
        self.base + at.min(self.until) - self.origin
    }

    fn spent(&self, at: i64) -> i128 {
        let seconds = Seconds::floor_millis(self.millis(at)).max(self.settled.seconds);
        i128::from(self.rate.charged(seconds).get()) - i128::from(self.settled.micros.get())
    }

    /// The last moment up to `at` at which this piece completed a second.
    fn completed(&self, at: i64) -> Option<i64> {
        let whole = self.millis(at).div_euclid(1000) * 1000;
        (whole >= 0).then(|| whole - self.base + self.origin)
    }
}

/// Everything that costs: what runs on, and what closed segments still owe.
#[derive(Debug, Default)]
pub(crate) struct Burn {
    pieces: Vec<Piece>,
    owed: i128,
    /// The first opening: the earliest end there can be.
    opening: Option<i64>,
    /// The newest moment that is settled already: no end can be before it.
    settled_at: Option<i64>,
}

impl Burn {
    pub(crate) fn add(
        &mut self,
        segment: &Segment,
        book: &PriceBook,
        now: Timestamp,
    ) -> Result<(), OutOfRange> {
        let terms = segment.terms();
        if let SegmentState::Closed { ended_at, .. } = segment.state() {
            self.owed += i128::from(segment.accrued(ended_at).get());
            return Ok(());
        }
        // A disk that is free, now and in every price that is known, neither ends nor makes anything end.
        let free = terms.meter.card().is_none() && terms.rate == Rate::ZERO;
        if free && book.after(&terms.offer_id, terms.price_version).all(|price| price.rate == Rate::ZERO) {
            return Ok(());
        }
        let window_end = segment.window_end(now);
        let frontier = segment.coverage().frontier(window_end.get());
        let unproven = window_end.get() - frontier.unwrap_or(0).max(terms.anchor.mono_ms.get());
        let base = signed(segment.confirmed_millis(now)) + signed(unproven);
        let mut piece =
            Piece { rate: terms.rate, settled: segment.settled(), base, origin: 0, until: HORIZON_MS };
        self.opening = self.opening.into_iter().chain([-base]).min();
        let settled_at = segment.settled().seconds.get() * 1000 - base;
        self.settled_at = self.settled_at.max((settled_at > -base).then_some(settled_at));
        for price in book.after(&terms.offer_id, terms.price_version) {
            let Some(at) = segment.changes_at(price) else { continue };
            let change = signed(terms.anchor.mono_at(at).get()) - signed(window_end.get());
            piece.until = change.min(HORIZON_MS);
            self.pieces.push(piece);
            let settled = Settled::default();
            let rate = terms.meter.rate_at(price.rate).map_err(|_| OutOfRange)?;
            piece = Piece { rate, settled, base: 0, origin: change, until: HORIZON_MS };
        }
        self.pieces.push(piece);
        Ok(())
    }

    /// The earliest end there can be; `None`: nothing runs.
    pub(crate) fn earliest_end(&self) -> Option<i64> {
        self.opening.map(|opening| self.settled_at.unwrap_or(opening))
    }

    /// The instant at which the last second within `budget` is complete, looked for in `[low, high]`; never before `earliest`.
    pub(crate) fn end_within(
        &self,
        budget: i128,
        low: i64,
        high: i64,
        earliest: i64,
        now: Timestamp,
    ) -> Timestamp {
        let last = self.last_affordable(budget, low, high);
        let whole = self.pieces.iter().filter_map(|piece| piece.completed(last)).max();
        let end = whole.unwrap_or(earliest).max(earliest);
        now.plus_micros(end * MICROS_PER_MILLI)
    }

    /// What is spent beyond what is settled, by `at` milliseconds from now.
    pub(crate) fn spent(&self, at: i64) -> i128 {
        self.owed + self.pieces.iter().map(|piece| piece.spent(at)).sum::<i128>()
    }

    /// The last moment in `[low, high]` up to which `budget` lasts; `low` when it lasts to none.
    fn last_affordable(&self, budget: i128, low: i64, high: i64) -> i64 {
        let (mut affordable, mut refused) = (low, high + 1);
        while refused - affordable > 1 {
            let middle = affordable + (refused - affordable) / 2;
            if self.spent(middle) <= budget {
                affordable = middle;
            } else {
                refused = middle;
            }
        }
        affordable
    }
}

/// When the money of one tenant ends, given all of its segments that are open or not fully settled. Grants that have expired by
/// `now` are settled against and taken back first, as for any settlement: here they count as gone.
pub fn forecast<'segment>(
    segments: impl IntoIterator<Item = &'segment Segment>,
    book: &PriceBook,
    funds: &Funds,
    now: Timestamp,
) -> Result<Runway, OutOfRange> {
    let mut burn = Burn::default();
    for segment in segments {
        burn.add(segment, book, now)?;
    }
    let Some(earliest) = burn.earliest_end() else {
        return Ok(Runway::Unlimited);
    };

    // Between two expiries the spendable grants stay the same; each window draws on what the one before left.
    let (mut funds, mut from, mut low, mut drawn) = (funds.clone(), now, earliest, 0);
    loop {
        let expiry = funds.next_expiry(from);
        let high =
            expiry.map_or(HORIZON_MS, |at| ((at.micros_since(now) - 1) / MICROS_PER_MILLI).min(HORIZON_MS));
        let budget = drawn + i128::from(funds.available(from).get());
        if burn.spent(high) > budget {
            return Ok(Runway::Until(burn.end_within(budget, low, high, earliest, now)));
        }
        let Some(expiry) = expiry.filter(|_| high < HORIZON_MS) else {
            return Ok(Runway::Unlimited);
        };
        let spent = burn.spent(high);
        let draw = Micros::narrow(spent - drawn)?;
        (_, funds) = funds.draw(draw, from).map_err(|_| OutOfRange)?;
        (from, low, drawn) = (expiry, high, spent);
    }
}
