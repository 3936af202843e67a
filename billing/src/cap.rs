//! Spend caps: the instant at which what a tenant wants to spend in a period is spent.
//!
//! A period is a calendar day or month of UTC. What a second costs counts in the period in which it was proven to run, as on the bill:
//! the difference of two cumulative floors. As with exhaustion, the answer is the instant at which the last second within the limit is
//! complete, computed and never polled; a period that is not exceeded begins the next afresh, so the answer may lie days ahead.
//! Whoever drives this asks again on every change of burn, price or limit.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tarn_protocol::units::Timestamp;

use crate::exhaustion::Burn;
use crate::money::{Micros, OutOfRange};
use crate::price::PriceBook;
use crate::segment::{Segment, SegmentState};

const DAY_MICROS: i64 = 24 * 3600 * 1_000_000;
/// Periods looked at ahead: a price that is known today begins within them, or is asked about again when they have passed.
const PERIODS_MAX: usize = 400;

/// A calendar period of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    Day,
    Month,
}

/// A text that names no period.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown period")]
pub struct UnknownPeriod;

/// Half-open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub from: Timestamp,
    pub to: Timestamp,
}

impl Period {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Month => "month",
        }
    }

    /// The period that `at` lies in.
    pub fn window(self, at: Timestamp) -> Window {
        let day = at.as_micros().div_euclid(DAY_MICROS);
        let (from, to) = match self {
            Self::Day => (day, day + 1),
            Self::Month => {
                let (year, month) = month_of(day);
                let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
                (first_day(year, month), first_day(next.0, next.1))
            }
        };
        let instant = |day: i64| Timestamp::from_micros(day.saturating_mul(DAY_MICROS));
        Window { from: instant(from), to: instant(to) }
    }
}

/// The first day of a month, in days since 1970-01-01 (proleptic Gregorian calendar, years that begin in March).
const fn first_day(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year and month of a day since 1970-01-01.
const fn month_of(day: i64) -> (i64, i64) {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + if month <= 2 { 1 } else { 0 }, month)
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Period {
    type Err = UnknownPeriod;
    fn from_str(text: &str) -> Result<Self, UnknownPeriod> {
        [Self::Day, Self::Month].into_iter().find(|period| period.as_str() == text).ok_or(UnknownPeriod)
    }
}

/// So much in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cap {
    pub period: Period,
    pub limit: Micros,
}

/// What the proven seconds of `window` up to `at` cost.
pub fn spent<'segment>(
    segments: impl IntoIterator<Item = &'segment Segment>,
    window: Window,
    at: Timestamp,
) -> Result<Micros, OutOfRange> {
    let until = at.min(window.to);
    Micros::checked_sum(segments.into_iter().map(|segment| {
        let charged = |at: Timestamp| segment.terms().rate.charged(segment.confirmed(at)).get();
        Micros::new((charged(until) - charged(window.from.min(until))).max(0))
    }))
}

/// When `cap` is reached if nothing changes, given the segments under it that are open or ended within its current period; it may be
/// in the past. `None`: not within [`PERIODS_MAX`] periods, or nothing runs.
pub fn crossing<'segment>(
    segments: impl IntoIterator<Item = &'segment Segment> + Clone,
    book: &PriceBook,
    cap: Cap,
    now: Timestamp,
) -> Result<Option<Timestamp>, OutOfRange> {
    let mut window = cap.period.window(now);
    let mut burn = Burn::default();
    // What of the period is spent and burns no more: ended segments, and what the open ones have settled within it.
    let mut spent = 0_i128;
    for segment in segments {
        let at_start = segment.terms().rate.charged(segment.confirmed(window.from)).get();
        match segment.state() {
            SegmentState::Closed { ended_at, .. } => {
                let at_end = segment.terms().rate.charged(segment.confirmed(ended_at)).get();
                spent += i128::from((at_end - at_start).max(0));
            }
            SegmentState::Open => {
                spent += i128::from(segment.settled().micros.get()) - i128::from(at_start);
                burn.add(segment, book, now)?;
            }
        }
    }
    let Some(earliest) = burn.earliest_end() else { return Ok(None) };
    let (mut low, mut before) = (earliest, 0);
    for _ in 0..PERIODS_MAX {
        // The second that is complete at the boundary belongs to the period that ends there.
        let high = window.to.micros_since(now).div_euclid(1000);
        let budget = i128::from(cap.limit.get()) - spent + before;
        if burn.spent(high) > budget {
            return Ok(Some(burn.end_within(budget, low, high, earliest, now)));
        }
        (spent, before) = (0, burn.spent(high));
        low = low.max(high);
        window = cap.period.window(window.to);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coverage::Coverage;
    use crate::meter::Meter;
    use crate::price::PriceVersion;
    use crate::rate::{Rate, Seconds};
    use crate::segment::{Anchor, CloseReason, SegmentTerms, Settled};
    use proptest::prelude::*;
    use tarn_protocol::ids::{InstanceId, SegmentId, TenantId};
    use tarn_protocol::units::{BootId, Generation, MonoMillis};

    /// 2027-01-15 08:00 UTC.
    const NOW: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

    fn segment(rate: i64, started: i64, proven: u64, ended: Option<i64>, settled: i64) -> Segment {
        let at = NOW.plus_seconds(started);
        let rate = Rate::per_hour(Micros::new(rate)).unwrap();
        let mut coverage = Coverage::default();
        coverage.insert(5_000, 5_000 + proven * 1000).unwrap();
        let terms = SegmentTerms {
            id: SegmentId::new(at, 1),
            tenant_id: TenantId::new(at, 1),
            instance_id: InstanceId::new(at, 1),
            generation: Generation::new(1),
            offer_id: "pool-96".parse().unwrap(),
            meter: Meter::Card("GPU-00000000-0000-0000-0000-000000000001".parse().unwrap()),
            price_version: PriceVersion::FIRST,
            rate,
            anchor: Anchor { at, boot_id: BootId::new("boot"), mono_ms: MonoMillis::new(5_000) },
        };
        let seconds = Seconds::new(settled).unwrap();
        let settled = Settled { seconds, micros: rate.charged(seconds) };
        let state = ended.map_or(SegmentState::Open, |ended| SegmentState::Closed {
            ended_at: NOW.plus_seconds(ended),
            reason: CloseReason::UserRequest,
        });
        Segment::from_stored(terms, coverage, settled, state).unwrap()
    }

    #[test]
    fn days_and_months_are_those_of_the_calendar() {
        let day = |text: &str| -> i64 {
            let parts: Vec<i64> = text.split('-').map(|part| part.parse().unwrap()).collect();
            first_day(parts[0], parts[1]) + parts[2] - 1
        };
        assert_eq!((day("1970-01-01"), day("2000-03-01"), day("2027-01-15")), (0, 11_017, 20_833));
        for (at, from, to) in [
            ("2027-01-15", "2027-01-01", "2027-02-01"),
            ("2028-02-29", "2028-02-01", "2028-03-01"),
            ("2027-12-31", "2027-12-01", "2028-01-01"),
            ("2100-02-28", "2100-02-01", "2100-03-01"),
            ("1969-12-31", "1969-12-01", "1970-01-01"),
        ] {
            let window = Period::Month.window(Timestamp::from_micros(day(at) * DAY_MICROS + 5));
            let days = [window.from, window.to].map(|at| at.as_micros() / DAY_MICROS);
            assert_eq!(days, [day(from), day(to)], "{at}");
        }
        let window = Period::Day.window(NOW);
        assert_eq!(
            (NOW.micros_since(window.from), window.to.micros_since(NOW)),
            (8 * 3_600_000_000, 16 * 3_600_000_000)
        );
    }

    #[test]
    fn the_cap_is_reached_at_the_last_second_within_it() {
        // 2.40 an hour since 07:00 and until 07:30; 2.40 an hour since 07:50, proven up to now.
        let ended = segment(2_400_000, -3600, 1800, Some(-1800), 1800);
        let open = segment(2_400_000, -600, 600, None, 300);
        let both = [ended, open];
        let at = |limit| {
            let cap = Cap { period: Period::Day, limit: Micros::new(limit) };
            crossing(&both, &PriceBook::default(), cap, NOW)
                .unwrap()
                .map(|at| at.micros_since(NOW) / 1_000_000)
        };
        assert_eq!(spent(&both, Period::Day.window(NOW), NOW), Ok(Micros::new(1_600_000)));
        assert_eq!(at(4_000_000), Some(3600), "2.40 are left: an hour");
        assert_eq!(at(1_600_000), Some(0), "reached now");
        // 0.30 of this run are within it: 450 s, and 0.20 of them are settled.
        assert_eq!(at(1_500_000), Some(-150));
        assert_eq!(at(1_000_000), Some(-300), "no end is before what is settled");
        // 38.40 more are burnt until midnight; the next day begins afresh, with 57.60 of its own.
        assert_eq!(at(40_000_000), Some(16 * 3600 + 16 * 3600 + 40 * 60));
        assert_eq!(at(57_600_000), None, "a whole day costs no more");
    }

    proptest! {
        /// Against counting second by second.
        #[test]
        fn the_crossing_is_where_counting_finds_it(
            rates in prop::collection::vec(1i64..20_000_000, 1..4), started in prop::collection::vec(0i64..90_000, 3),
            limit in 0i64..200_000_000,
        ) {
            let segments: Vec<Segment> = rates.iter().zip(&started)
                .map(|(rate, ago)| segment(*rate, -ago, u64::try_from(*ago).unwrap(), None, 0)).collect();
            let cap = Cap { period: Period::Day, limit: Micros::new(limit) };
            let told = crossing(&segments, &PriceBook::default(), cap, NOW).unwrap();
            let window = Period::Day.window(NOW);
            let cost = |at: i64, from: i64| -> i64 {
                rates.iter().zip(&started).map(|(rate, ago)| {
                    let rate = Rate::per_hour(Micros::new(*rate)).unwrap();
                    let charged = |at: i64| rate.charged(Seconds::new((at + ago).max(0)).unwrap()).get();
                    charged(at) - charged(from)
                }).sum()
            };
            let from = window.from.micros_since(NOW) / 1_000_000;
            let end = window.to.micros_since(NOW) / 1_000_000;
            if let Some(told) = told.map(|at| at.micros_since(NOW) / 1_000_000).filter(|told| *told < end) {
                // Within the limit up to there (or nothing could be earlier), and beyond it one second later.
                let opening = -started[..rates.len()].iter().max().copied().unwrap();
                prop_assert!(cost(told, from) <= limit || told <= opening.max(from), "{told}");
                prop_assert!(cost(told + 1, from) > limit, "{told}");
            } else {
                prop_assert!(cost(end, from) <= limit);
            }
        }
    }
}
