//! Rates and the cumulative floor.
//!
//! 2.40 CNY per hour is 666.67 micros per second, so charging second by second leaks. What a segment owes after `s` seconds is
//! `floor(rate × s / 3600)` over its whole life; a settlement posts only the difference to what it already settled. The total is
//! therefore the same however the settlements fall.

use serde::{Deserialize, Serialize};

use crate::money::{Micros, OutOfRange};

const SECONDS_PER_HOUR: i128 = 3600;

/// A price: whole micro-CNY per hour, from 0 to [`Rate::MAX`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Micros", into = "Micros")]
pub struct Rate(i64);

/// A price below zero or above [`Rate::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a rate is between 0 and 1000000.00 per hour")]
pub struct InvalidRate;

/// Whole billable seconds, from 0 to [`Seconds::MAX`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Seconds(i64);

/// A count of seconds below zero or above [`Seconds::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("seconds out of range")]
pub struct InvalidSeconds;

impl Rate {
    pub const ZERO: Self = Self(0);
    /// 1,000,000 CNY per hour: far above any card, low enough that [`Rate::charged`] never overflows.
    pub const MAX: Self = Self(1_000_000_000_000);

    pub const fn per_hour(micros: Micros) -> Result<Self, InvalidRate> {
        if micros.get() >= 0 && micros.get() <= Self::MAX.0 {
            Ok(Self(micros.get()))
        } else {
            Err(InvalidRate)
        }
    }

    /// Micros for one hour.
    pub const fn hourly(self) -> Micros {
        Micros::new(self.0)
    }

    /// The rate of `count` things at this rate each.
    pub fn times(self, count: u32) -> Result<Self, InvalidRate> {
        let product = i128::from(self.0) * i128::from(count);
        i64::try_from(product).map_err(|_| InvalidRate).and_then(|micros| Self::per_hour(Micros::new(micros)))
    }

    /// What `seconds` cost in all: the cumulative floor.
    pub fn charged(self, seconds: Seconds) -> Micros {
        let wide = i128::from(self.0) * i128::from(seconds.0) / SECONDS_PER_HOUR;
        Micros::narrow(wide).expect("Rate::MAX for Seconds::MAX is 8.9e18 micros")
    }

    /// The last second `T` that `budget` pays for in all: `charged(T) <= budget < charged(T + 1)`, or [`Seconds::MAX`] when the
    /// money outlasts it. `None` when the budget is negative.
    ///
    /// `floor(rate × T / 3600) <= b` is `rate × T < (b + 1) × 3600`, hence `T = floor(((b + 1) × 3600 − 1) / rate)`.
    pub fn last_affordable(self, budget: Micros) -> Option<Seconds> {
        if budget < Micros::ZERO {
            return None;
        }
        let seconds = ((i128::from(budget.get()) + 1) * SECONDS_PER_HOUR - 1)
            .checked_div(i128::from(self.0))
            .and_then(|seconds| i64::try_from(seconds).ok())
            .unwrap_or(Seconds::MAX.0);
        Some(Seconds(seconds.min(Seconds::MAX.0)))
    }
}

impl TryFrom<Micros> for Rate {
    type Error = InvalidRate;
    fn try_from(micros: Micros) -> Result<Self, InvalidRate> {
        Self::per_hour(micros)
    }
}

impl From<Rate> for Micros {
    fn from(rate: Rate) -> Micros {
        rate.hourly()
    }
}

/// The whole burn of several rates over one hour.
pub fn hourly_burn(rates: impl IntoIterator<Item = Rate>) -> Result<Micros, OutOfRange> {
    Micros::checked_sum(rates.into_iter().map(Rate::hourly))
}

impl Seconds {
    pub const ZERO: Self = Self(0);
    /// 32 × 10^9 seconds: 1,014 years.
    pub const MAX: Self = Self(32_000_000_000);

    pub const fn new(seconds: i64) -> Result<Self, InvalidSeconds> {
        if seconds >= 0 && seconds <= Self::MAX.0 { Ok(Self(seconds)) } else { Err(InvalidSeconds) }
    }

    pub const fn get(self) -> i64 {
        self.0
    }

    /// Whole seconds of a sum of milliseconds; negative sums give 0, absurd ones [`Seconds::MAX`].
    pub fn floor_millis(millis: i64) -> Self {
        Self((millis / 1000).clamp(0, Self::MAX.0))
    }

    /// Seconds from `earlier` to here, 0 when `earlier` is later.
    pub fn since(self, earlier: Self) -> Self {
        Self((self.0 - earlier.0).max(0))
    }
}

impl TryFrom<i64> for Seconds {
    type Error = InvalidSeconds;
    fn try_from(seconds: i64) -> Result<Self, InvalidSeconds> {
        Self::new(seconds)
    }
}

impl From<Seconds> for i64 {
    fn from(seconds: Seconds) -> i64 {
        seconds.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(micros: i64) -> Rate {
        Rate::per_hour(Micros::new(micros)).unwrap()
    }

    fn seconds(count: i64) -> Seconds {
        Seconds::new(count).unwrap()
    }

    #[test]
    fn golden_vector_of_pool_96() {
        for (count, micros) in
            [(0, 0), (1, 666), (14_999, 9_999_333), (15_000, 10_000_000), (15_001, 10_000_666)]
        {
            assert_eq!(rate(2_400_000).charged(seconds(count)), Micros::new(micros));
        }
        assert_eq!(rate(2_400_000).last_affordable(Micros::new(10_000_000)), Some(seconds(15_000)));
    }

    #[test]
    fn m16_extremes_do_not_overflow() {
        let most = Rate::MAX.charged(Seconds::MAX);
        assert_eq!(Rate::MAX.last_affordable(most), Some(Seconds::MAX));
        assert_eq!(Rate::ZERO.last_affordable(Micros::ZERO), Some(Seconds::MAX));
        assert_eq!(rate(1).last_affordable(Micros::new(i64::MAX)), Some(Seconds::MAX));
        let year = Rate::MAX.charged(seconds(31_536_000));
        assert_eq!(Micros::checked_sum(std::iter::repeat_n(year, 8)).unwrap().get(), 70_080_000_000_000_000);
        assert!(Rate::per_hour(Micros::new(-1)).is_err());
        assert_eq!(rate(500).times(30), Ok(rate(15_000)));
        assert!(Rate::MAX.times(2).is_err());
        assert!(Rate::MAX.times(u32::MAX).is_err());
        assert!(Seconds::new(-1).is_err());
    }

    proptest! {
        #[test]
        fn last_affordable_is_the_last(hourly in 1i64..=1_000_000_000_000, budget in 0i64..=1_000_000_000_000_000) {
            let (rate, budget) = (rate(hourly), Micros::new(budget));
            let last = rate.last_affordable(budget).unwrap();
            prop_assert!(rate.charged(last) <= budget);
            if last < Seconds::MAX {
                prop_assert!(rate.charged(seconds(last.get() + 1)) > budget);
            }
        }
    }
}
