//! Leased time: where each millisecond of a lease went, onto the bill or to a named reason.
//!
//! A lease takes cards from the market; a segment bills them. What lies between the two is Tarn's own cost, and it leaks unless
//! somebody looks. [`account`] cuts a lease into stretches that follow each other without gap or overlap, so billed and unbilled time
//! sum to the leased time by construction, to the millisecond.
//!
//! Which milliseconds the settled seconds are is a convention: the first proven ones of the segment, in order of time. A rate holds for
//! a whole segment, so no other choice gives another amount.
//!
//! A lease's instants are floored to whole milliseconds, as a segment's clock counts them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tarn_protocol::units::{BootId, Timestamp};

use crate::segment::{CloseReason, Segment, SegmentState};
use crate::states::MeteredState;

const MICROS_PER_MILLI: i64 = 1000;
const MILLIS_PER_SECOND: i64 = 1000;
/// A closed segment is taken as still being settled for this long.
const SETTLING_MILLIS: i64 = 60 * MILLIS_PER_SECOND;

/// Why leased time is not on the bill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unbilled {
    /// From the lease to the first ready evidence.
    Starting,
    /// A fault of ours, or time that the host itself excused.
    DegradedByUs,
    /// Nothing proves that it ran: the host was silent and never made up for it.
    Unreachable,
    /// The host failed or was lost.
    HostFault,
    /// Billing has ended and the host has not yet proven that nothing is left.
    StopLatency,
    /// An operator stopped it: a drain, or an offer without a price.
    Operator,
    /// Not proven or not settled yet; the next evidence and the next settlement take it.
    Pending,
    /// Less than a second of each segment, which nobody pays.
    Rounding,
    /// Proven, and beyond the tenant's money.
    Unpaid,
}

/// A text that names no reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown reason of unbilled time")]
pub struct UnknownUnbilled;

impl Unbilled {
    pub const ALL: [Self; 9] = [
        Self::Starting,
        Self::DegradedByUs,
        Self::Unreachable,
        Self::HostFault,
        Self::StopLatency,
        Self::Operator,
        Self::Pending,
        Self::Rounding,
        Self::Unpaid,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::DegradedByUs => "degraded_by_us",
            Self::Unreachable => "unreachable",
            Self::HostFault => "host_fault",
            Self::StopLatency => "stop_latency",
            Self::Operator => "operator",
            Self::Pending => "pending",
            Self::Rounding => "rounding",
            Self::Unpaid => "unpaid",
        }
    }

    /// After a segment that ended so, until the record says something newer.
    const fn after(reason: CloseReason) -> Self {
        match reason {
            CloseReason::UserRequest
            | CloseReason::Terminated
            | CloseReason::CommandEnded
            | CloseReason::BalanceExhausted
            | CloseReason::SpendCap => Self::StopLatency,
            CloseReason::Failed | CloseReason::HostLost => Self::HostFault,
            CloseReason::PriceChanged | CloseReason::PrimaryReplaced => Self::Rounding,
            CloseReason::Degraded => Self::DegradedByUs,
        }
    }
}

impl fmt::Display for Unbilled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Unbilled {
    type Err = UnknownUnbilled;
    fn from_str(text: &str) -> Result<Self, UnknownUnbilled> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text).ok_or(UnknownUnbilled)
    }
}

/// What the record said of the instance from `at` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub at: Timestamp,
    pub state: MeteredState,
    /// An operator's doing.
    pub by_operator: bool,
}

impl Step {
    const fn reason(self) -> Unbilled {
        match (self.by_operator, self.state) {
            // Running without a segment: an offer without a price.
            (true, _) | (_, MeteredState::Running | MeteredState::RunningTenantFault) => Unbilled::Operator,
            (_, MeteredState::Preparing) => Unbilled::Starting,
            (_, MeteredState::Unreachable) => Unbilled::Unreachable,
            (_, MeteredState::DegradedByUs) => Unbilled::DegradedByUs,
            (_, MeteredState::HostFault) => Unbilled::HostFault,
            (_, MeteredState::Stopping | MeteredState::Stopped | MeteredState::Terminated) => {
                Unbilled::StopLatency
            }
        }
    }
}

/// Time of one boot that the host itself took off its evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excused {
    pub boot_id: BootId,
    pub from_mono_ms: u64,
    pub to_mono_ms: u64,
}

/// One lease with all that is known of it.
#[derive(Debug, Clone, Copy)]
pub struct Lease<'record> {
    pub from: Timestamp,
    /// Its release, or now.
    pub to: Timestamp,
    /// In order of time.
    pub steps: &'record [Step],
    /// Of the lease's generation, in order of opening.
    pub segments: &'record [Segment],
    pub excused: &'record [Excused],
    pub now: Timestamp,
}

/// Where a stretch of leased time went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// On the bill of the segment at this place; `first_ms` of its charged milliseconds came before.
    Billed {
        first_ms: u64,
    },
    Unbilled(Unbilled),
}

/// Half-open, in whole milliseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    pub from_ms: i64,
    pub to_ms: i64,
    pub spent: Spent,
    /// Place of the segment in whose window it lies.
    pub segment: Option<usize>,
}

impl Stretch {
    pub const fn millis(&self) -> i64 {
        self.to_ms - self.from_ms
    }

    pub const fn from(&self) -> Timestamp {
        Timestamp::from_micros(self.from_ms * MICROS_PER_MILLI)
    }

    pub const fn to(&self) -> Timestamp {
        Timestamp::from_micros(self.to_ms * MICROS_PER_MILLI)
    }

    /// What of it lies in `[from_ms, to_ms)`.
    pub fn clipped(self, from_ms: i64, to_ms: i64) -> Option<Self> {
        let (from, to) = (self.from_ms.max(from_ms), self.to_ms.min(to_ms));
        let skipped = from.saturating_sub(self.from_ms).unsigned_abs();
        let spent = match self.spent {
            Spent::Billed { first_ms } => Spent::Billed { first_ms: first_ms + skipped },
            unbilled @ Spent::Unbilled(_) => unbilled,
        };
        (from < to).then_some(Self { from_ms: from, to_ms: to, spent, ..self })
    }
}

/// Whole milliseconds since the epoch.
pub const fn millis_of(at: Timestamp) -> i64 {
    at.as_micros().div_euclid(MICROS_PER_MILLI)
}

/// Cuts a lease into stretches: in order, without gap or overlap, together the whole of it.
pub fn account(lease: &Lease<'_>) -> Vec<Stretch> {
    let mut cut = Cut { at: millis_of(lease.from), to: millis_of(lease.to), stretches: Vec::new() };
    let mut ended = None;
    for (place, segment) in lease.segments.iter().enumerate() {
        let opens = millis_of(segment.opened_at());
        outside(&mut cut, lease, opens, ended);
        inside(&mut cut, lease, place, segment);
        if let SegmentState::Closed { ended_at, reason } = segment.state() {
            ended = Some((ended_at, reason));
        }
    }
    outside(&mut cut, lease, i64::MAX, ended);
    cut.stretches
}

/// The lease up to where it is cut.
struct Cut {
    at: i64,
    to: i64,
    stretches: Vec<Stretch>,
}

impl Cut {
    /// What lies between here and `until` went there. What is before or beyond the lease is nobody's.
    fn until(&mut self, until: i64, spent: Spent, segment: Option<usize>) {
        let until = until.min(self.to);
        if until > self.at {
            self.stretches.push(Stretch { from_ms: self.at, to_ms: until, spent, segment });
            self.at = until;
        }
    }
}

/// No segment is open: the newer of the last end and the last step says why.
fn outside(cut: &mut Cut, lease: &Lease<'_>, until: i64, ended: Option<(Timestamp, CloseReason)>) {
    let until = until.min(cut.to);
    while cut.at < until {
        let before = lease.steps.partition_point(|step| millis_of(step.at) <= cut.at);
        let step = lease.steps[..before].last().filter(|step| ended.is_none_or(|(at, _)| step.at >= at));
        let reason = match (step, ended) {
            // The record is behind: money ended, a host was lost, and the state says running still.
            (Some(step), Some((_, reason))) if step.state.card() == crate::states::CardBilling::Proven => {
                Unbilled::after(reason)
            }
            (Some(step), None) if step.state == MeteredState::Running && !lease.segments.is_empty() => {
                Unbilled::Starting
            }
            (Some(step), _) => step.reason(),
            (None, Some((_, reason))) => Unbilled::after(reason),
            (None, None) => Unbilled::Starting,
        };
        let next = lease.steps.get(before).map_or(until, |step| millis_of(step.at).min(until));
        cut.until(next, Spent::Unbilled(reason), None);
    }
}

/// In the window of a segment: proven and settled, proven only, or not proven.
fn inside(cut: &mut Cut, lease: &Lease<'_>, place: usize, segment: &Segment) {
    let anchor = segment.terms().anchor.mono_ms.get();
    let end = segment.window_end(lease.now).get();
    let opens = millis_of(segment.opened_at());
    let instant = |mono: u64| opens.saturating_add_unsigned(mono.saturating_sub(anchor));
    let rest = beyond(segment, lease.now);
    let frontier = segment.coverage().frontier(end).unwrap_or(anchor);
    let mut billed = segment.settled().seconds.get().unsigned_abs() * MILLIS_PER_SECOND.unsigned_abs();
    let (mut at, mut charged) = (anchor, 0);
    for (from, to) in
        segment.coverage().intervals().iter().map(|(from, to)| (*from.max(&anchor), *to.min(&end)))
    {
        if from >= to {
            continue;
        }
        unproven(cut, lease, (place, segment), (at, from, frontier));
        let paid = (to - from).min(billed);
        let skipped = cut.at.saturating_sub(instant(from)).max(0).unsigned_abs();
        cut.until(instant(from + paid), Spent::Billed { first_ms: charged + skipped }, Some(place));
        cut.until(instant(to), Spent::Unbilled(rest), Some(place));
        (billed, charged, at) = (billed - paid, charged + paid, to);
    }
    unproven(cut, lease, (place, segment), (at, end, frontier));
}

/// Why proven milliseconds beyond the settled seconds are not on the bill.
fn beyond(segment: &Segment, now: Timestamp) -> Unbilled {
    let Some(ended_at) = segment.ended_at() else { return Unbilled::Pending };
    let settled = segment.settled().seconds;
    if segment.confirmed(now) <= settled {
        Unbilled::Rounding
    } else if millis_of(now) - millis_of(ended_at) < SETTLING_MILLIS {
        Unbilled::Pending
    } else {
        Unbilled::Unpaid
    }
}

/// Time in the window that nothing proves: excused by the host, on its way, or lost.
fn unproven(
    cut: &mut Cut,
    lease: &Lease<'_>,
    (place, segment): (usize, &Segment),
    (from, to, frontier): (u64, u64, u64),
) {
    let anchor = &segment.terms().anchor;
    let opens = millis_of(segment.opened_at());
    let instant = |mono: u64| opens.saturating_add_unsigned(mono.saturating_sub(anchor.mono_ms.get()));
    let open = segment.state() == SegmentState::Open;
    let lost = if open && from >= frontier { Unbilled::Pending } else { Unbilled::Unreachable };
    let mut excused: Vec<(u64, u64)> = lease
        .excused
        .iter()
        .filter(|excused| excused.boot_id == anchor.boot_id)
        .map(|excused| (excused.from_mono_ms.max(from), excused.to_mono_ms.min(to)))
        .filter(|(from, to)| from < to)
        .collect();
    excused.sort_unstable();
    for (from, to) in excused {
        cut.until(instant(from), Spent::Unbilled(lost), Some(place));
        cut.until(instant(to), Spent::Unbilled(Unbilled::DegradedByUs), Some(place));
    }
    cut.until(instant(to), Spent::Unbilled(lost), Some(place));
}

#[cfg(test)]
mod tests;
