//! Catching up: what time alone has changed in one tenant's money by now, in the order of its instants.
//!
//! New prices split segments. Each grant that has expired is drawn on by everything proven before its expiry, and what is left of it
//! goes back. Where the money ended, the open segments end, at that instant. What is left is settled up to now. Whoever looks at a
//! tenant's money (the settling worker, the exhausting one, a payment that comes in) carries out the same steps first, so that the
//! ledger does not depend on who came by when (M4, M13).
//!
//! [`catch_up`] plans and changes nothing. Its caller carries the steps out in their order, in one transaction, under the guards that
//! [`settlement`](crate::settlement) names. [`Step::Exhaust`] is always the last: the caller ends the open segments there, which frees
//! what ran, and catches up again.

use tarn_protocol::units::Timestamp;

use crate::exhaustion::{Runway, forecast};
use crate::funds::Funds;
use crate::grant::Grant;
use crate::money::{Micros, OutOfRange};
use crate::price::PriceBook;
use crate::segment::{InvalidSegment, Segment, SegmentState};
use crate::settlement::{SettleError, Settlement, due_price, settle};
use crate::transfer::{InvalidTransfer, Transfer};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A newer price is in force inside a segment: it ended there, and another began.
    Split { ended: Segment, begun: Segment },
    /// Seconds into the ledger; `segment` is the one after it.
    Settle { segment: Segment, plan: Settlement },
    /// What is left of an expired grant goes back. A pending hold may keep it on the wallet until the hold is resolved: then this
    /// step is left out, and the next time plans it again.
    Expire { before: Grant, transfer: Transfer },
    /// The money ended at `at`: every open segment ends there, with `BalanceExhausted`.
    Exhaust { at: Timestamp },
}

impl Step {
    /// The end of the money, if that is this step.
    pub const fn exhausts_at(&self) -> Option<Timestamp> {
        match self {
            Self::Exhaust { at } => Some(*at),
            Self::Split { .. } | Self::Settle { .. } | Self::Expire { .. } => None,
        }
    }
}

/// What is due, and the money that is left once all of it is carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaughtUp {
    pub steps: Vec<Step>,
    pub funds: Funds,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatchUpError {
    #[error(transparent)]
    Settle(#[from] SettleError),
    #[error(transparent)]
    Segment(#[from] InvalidSegment),
    #[error(transparent)]
    Transfer(#[from] InvalidTransfer),
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

/// Plans everything due by `now` for a tenant whose open and unsettled segments are `segments`.
pub fn catch_up(
    segments: Vec<Segment>,
    book: &PriceBook,
    funds: &Funds,
    now: Timestamp,
) -> Result<CaughtUp, CatchUpError> {
    let mut plan = Planner { segments, book, funds: funds.clone(), steps: Vec::new() };
    plan.split(now)?;
    while let Some(expires_at) = plan.funds.first_expiry().filter(|expires_at| *expires_at <= now) {
        let before = expires_at.plus_micros(-1);
        if plan.accrued(before)? > plan.funds.available(before) && plan.exhausts(before)? {
            return Ok(plan.done());
        }
        plan.settle(before)?;
        plan.expire(expires_at, now)?;
    }
    if !plan.exhausts(now)? {
        plan.settle(now)?;
    }
    Ok(plan.done())
}

/// The money as it will be once the steps so far are carried out.
struct Planner<'book> {
    segments: Vec<Segment>,
    book: &'book PriceBook,
    funds: Funds,
    steps: Vec<Step>,
}

impl Planner<'_> {
    fn done(self) -> CaughtUp {
        CaughtUp { steps: self.steps, funds: self.funds }
    }

    fn split(&mut self, now: Timestamp) -> Result<(), CatchUpError> {
        let mut place = 0;
        while let Some(segment) = self.segments.get(place) {
            if let Some(price) = due_price(segment, self.book, now) {
                let (ended, begun) = segment.clone().split(price)?;
                self.segments[place] = ended.clone();
                self.segments.push(begun.clone());
                self.steps.push(Step::Split { ended, begun });
            }
            place += 1;
        }
        Ok(())
    }

    fn accrued(&self, at: Timestamp) -> Result<Micros, OutOfRange> {
        Micros::checked_sum(self.segments.iter().map(|segment| segment.accrued(at)))
    }

    /// Whether the money of what runs ended by `at`; then that is the last step.
    fn exhausts(&mut self, at: Timestamp) -> Result<bool, OutOfRange> {
        let runs = self.segments.iter().any(|segment| segment.state() == SegmentState::Open);
        match forecast(&self.segments, self.book, &self.funds, at)? {
            Runway::Until(until) if runs && until <= at => {
                self.steps.push(Step::Exhaust { at: until });
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn settle(&mut self, at: Timestamp) -> Result<(), CatchUpError> {
        for segment in &mut self.segments {
            let plan = settle(segment, self.book, &self.funds, at)?;
            if plan.changes() {
                *segment = segment.clone().settle_to(plan.before, plan.after)?;
                self.funds = plan.funds_after.clone();
                self.steps.push(Step::Settle { segment: segment.clone(), plan });
            }
        }
        Ok(())
    }

    fn expire(&mut self, expires_at: Timestamp, now: Timestamp) -> Result<(), CatchUpError> {
        for before in self.funds.grants().to_vec() {
            let due = before.terms().expires_at == Some(expires_at);
            if let Some((transfer, spent)) = before.expiry(now)?.filter(|_| due) {
                self.funds = self.funds.clone().with(&spent);
                self.steps.push(Step::Expire { before, transfer });
            }
        }
        Ok(())
    }
}
