//! Charges: the lines that a customer reads.
//!
//! A line is made of what the segment has settled, so lines and ledger agree to the micro, and it carries everything needed to check
//! it by hand: SKU, card or size, seconds, rate and price version. Buckets cut the same seconds at boundaries of UTC, from hours to
//! calendar years; each is the difference of two cumulative floors, so buckets sum exactly to the line.

use std::str::FromStr;

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{RoundMode, Timestamp as Moment, TimestampRound, ToSpan, Unit};
use tarn_protocol::ids::{InstanceId, OfferId, SegmentId, TenantId};
use tarn_protocol::units::Timestamp;

use crate::meter::Meter;
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
    /// The SKU.
    pub offer_id: OfferId,
    pub meter: Meter,
    pub price_version: PriceVersion,
    /// Of the whole thing.
    pub rate: Rate,
    pub opened_at: Timestamp,
    pub state: SegmentState,
    pub seconds: Seconds,
    /// `rate.charged(seconds)`.
    pub amount: Micros,
}

/// The width of a bucket, aligned to the calendar of UTC. Weeks begin on Monday (ISO 8601).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketWidth {
    Hour,
    Day,
    Week,
    Month,
    Year,
}

/// A text that names no width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown width: hour, day, week, month or year")]
pub struct UnknownWidth;

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
            meter: terms.meter.clone(),
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
    pub const ALL: [Self; 5] = [Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// The last boundary at or before `at`.
    pub fn start(self, at: Timestamp) -> Timestamp {
        self.boundary(at, 0).unwrap_or(Timestamp::from_micros(i64::MIN))
    }

    /// The first boundary after `at`.
    pub fn next(self, at: Timestamp) -> Timestamp {
        self.boundary(at, 1).unwrap_or(Timestamp::from_micros(i64::MAX))
    }

    /// The boundary `later` widths after the one at or before `at`; `None` beyond the calendar (year 9999).
    fn boundary(self, at: Timestamp, later: i32) -> Option<Timestamp> {
        let moment = Moment::from_microsecond(at.as_micros()).ok()?;
        let day = TimeZone::UTC.to_datetime(moment).date();
        let of = |date: Date| {
            let midnight = TimeZone::UTC.to_timestamp(date.at(0, 0, 0, 0)).ok()?;
            Some(Timestamp::from_micros(midnight.as_microsecond()))
        };
        match self {
            Self::Hour => {
                let down = TimestampRound::new().smallest(Unit::Hour).mode(RoundMode::Floor);
                let hour = moment.round(down).ok()?.checked_add(later.hours()).ok()?;
                Some(Timestamp::from_micros(hour.as_microsecond()))
            }
            Self::Day => of(day.checked_add(later.days()).ok()?),
            Self::Week => {
                let monday = day.checked_sub(i32::from(day.weekday().since(Weekday::Monday)).days()).ok()?;
                of(monday.checked_add(later.weeks()).ok()?)
            }
            Self::Month => of(day.first_of_month().checked_add(later.months()).ok()?),
            Self::Year => of(day.first_of_year().checked_add(later.years()).ok()?),
        }
    }
}

impl FromStr for BucketWidth {
    type Err = UnknownWidth;
    fn from_str(text: &str) -> Result<Self, UnknownWidth> {
        Self::ALL.into_iter().find(|width| width.as_str() == text).ok_or(UnknownWidth)
    }
}

/// The settled seconds of `segments` within `[from, to)`, cut at boundaries of UTC. Every bucket of the range is there, empty or not; the
/// first and last may be cut short by the range.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::from_micros(text.parse::<Moment>().unwrap().as_microsecond())
    }

    #[test]
    fn boundaries_are_those_of_the_calendar_in_utc() {
        let cases = [
            (
                BucketWidth::Hour,
                "2027-03-31T23:59:59.999999Z",
                "2027-03-31T23:00:00Z",
                "2027-04-01T00:00:00Z",
            ),
            (BucketWidth::Day, "2028-02-28T12:00:00Z", "2028-02-28T00:00:00Z", "2028-02-29T00:00:00Z"),
            (BucketWidth::Week, "2027-01-03T01:00:00Z", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z"),
            (BucketWidth::Week, "2027-01-04T00:00:00Z", "2027-01-04T00:00:00Z", "2027-01-11T00:00:00Z"),
            (BucketWidth::Month, "2028-02-29T23:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
            (BucketWidth::Month, "2026-12-31T00:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            (BucketWidth::Year, "2028-12-31T23:59:59Z", "2028-01-01T00:00:00Z", "2029-01-01T00:00:00Z"),
            (BucketWidth::Month, "1969-12-31T23:59:59Z", "1969-12-01T00:00:00Z", "1970-01-01T00:00:00Z"),
        ];
        for (width, inside, start, next) in cases {
            assert_eq!(
                (width.start(at(inside)), width.next(at(inside))),
                (at(start), at(next)),
                "{width:?} {inside}"
            );
            assert_eq!(width.start(at(start)), at(start), "a boundary is its own start");
            assert_eq!(width.as_str().parse(), Ok(width));
        }
        let beyond = Timestamp::from_micros(i64::MAX - 1);
        assert_eq!(BucketWidth::Year.next(beyond), Timestamp::from_micros(i64::MAX));
    }
}
