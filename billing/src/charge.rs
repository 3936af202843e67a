//! Charges: the lines that a customer reads.
//!
//! A line is made of what the segment has settled, so lines and ledger agree to the micro, and it carries everything needed to check
//! it by hand: SKU, card, seconds, rate and price version. Buckets cut the same seconds at boundaries of UTC; each is the difference
//! of two cumulative floors, so buckets sum exactly to the line.

use tarn_protocol::ids::{GpuUuid, InstanceId, OfferId, SegmentId, TenantId};
use tarn_protocol::units::Timestamp;

use crate::money::{Micros, OutOfRange};
use crate::price::PriceVersion;
use crate::rate::{Rate, Seconds};
use crate::segment::{Segment, SegmentState};

/// Most buckets in one answer: 13 months of hours.
pub const BUCKETS_MAX: usize = 9_600;

/// What one segment has cost so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChargeLine {
    pub segment_id: SegmentId,
    pub tenant_id: TenantId,
    pub instance_id: InstanceId,
    pub offer_id: OfferId,
    /// The metered card.
    pub primary: GpuUuid,
    pub price_version: PriceVersion,
    pub rate: Rate,
    pub opened_at: Timestamp,
    pub state: SegmentState,
    pub seconds: Seconds,
    /// `rate.charged(seconds)`.
    pub amount: Micros,
}

/// The width of a bucket, aligned to UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketWidth {
    Hour,
    Day,
}

/// What half-open `[starts_at, ends_at)` cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    pub starts_at: Timestamp,
    pub ends_at: Timestamp,
    /// Over all segments.
    pub seconds: Seconds,
    pub amount: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBuckets {
    #[error("the range is empty")]
    Empty,
    #[error("more than {BUCKETS_MAX} buckets")]
    TooMany,
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

impl ChargeLine {
    pub fn of(segment: &Segment) -> Self {
        let terms = segment.terms();
        Self {
            segment_id: terms.id.clone(),
            tenant_id: terms.tenant_id.clone(),
            instance_id: terms.instance_id.clone(),
            offer_id: terms.offer_id.clone(),
            primary: terms.primary.clone(),
            price_version: terms.price_version,
            rate: terms.rate,
            opened_at: segment.opened_at(),
            state: segment.state(),
            seconds: segment.settled().seconds,
            amount: segment.settled().micros,
        }
    }
}

impl BucketWidth {
    const fn micros(self) -> i64 {
        match self {
            Self::Hour => 3_600_000_000,
            Self::Day => 86_400_000_000,
        }
    }

    /// The boundary after `at`.
    fn next(self, at: Timestamp) -> Timestamp {
        let width = self.micros();
        Timestamp::from_micros((at.as_micros().div_euclid(width) + 1).saturating_mul(width))
    }
}

/// The settled seconds of `segments` within `[from, to)`, cut at UTC hours or days. Every bucket of the range is there, empty or not;
/// the first and last may be cut short by the range.
pub fn buckets(
    segments: &[Segment],
    width: BucketWidth,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<Bucket>, InvalidBuckets> {
    if from >= to {
        return Err(InvalidBuckets::Empty);
    }
    let mut cut = Vec::new();
    let mut starts_at = from;
    while starts_at < to {
        if cut.len() == BUCKETS_MAX {
            return Err(InvalidBuckets::TooMany);
        }
        let ends_at = width.next(starts_at).min(to);
        cut.push(bucket(segments, starts_at, ends_at)?);
        starts_at = ends_at;
    }
    Ok(cut)
}

fn bucket(segments: &[Segment], starts_at: Timestamp, ends_at: Timestamp) -> Result<Bucket, OutOfRange> {
    let mut bucket = Bucket { starts_at, ends_at, seconds: Seconds::ZERO, amount: Micros::ZERO };
    let touches = |segment: &&Segment| {
        segment.opened_at() < ends_at && segment.ended_at().is_none_or(|ended_at| ended_at >= starts_at)
    };
    for segment in segments.iter().filter(touches) {
        let settled_by = |at| segment.confirmed(at).min(segment.settled().seconds);
        let (before, after) = (settled_by(starts_at), settled_by(ends_at));
        let rate = segment.terms().rate;
        let amount = rate.charged(after).checked_sub(rate.charged(before))?;
        bucket.amount = bucket.amount.checked_add(amount)?;
        let seconds = bucket.seconds.get() + after.since(before).get();
        bucket.seconds = Seconds::new(seconds).map_err(|_| OutOfRange)?;
    }
    Ok(bucket)
}
