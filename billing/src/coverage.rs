//! Coverage: which milliseconds of one boot's monotonic clock are proven.
//!
//! A set of half-open intervals, kept sorted, disjoint and merged. Evidence is added by union, which is idempotent, commutative and
//! associative: a report that comes twice, late or out of order gives the same set, so the same bill (M7), and no millisecond counts
//! twice (M5). The sequence numbers of the evidence need not be remembered for this to hold; they are kept as evidence only.
//!
//! Rejected: a running sum guarded by seen sequence numbers. It needs every number for 35 days, and one overlapping report bills a
//! second twice.

use serde::{Deserialize, Serialize};

/// Most intervals that one segment keeps. Evidence of a healthy agent joins into one; each suspension adds one.
pub const INTERVALS_MAX: usize = 4096;

/// Proven milliseconds, as `[from, to)` pairs in ascending order with a gap between any two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Coverage {
    intervals: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCoverage {
    #[error("intervals are not sorted, disjoint and non-empty")]
    NotCanonical,
    #[error("more than {INTERVALS_MAX} separate intervals")]
    TooFragmented,
}

impl Coverage {
    /// Everything: for what the control plane itself witnesses, from opening to end.
    pub fn whole() -> Self {
        Self { intervals: vec![(0, u64::MAX)] }
    }

    pub fn intervals(&self) -> &[(u64, u64)] {
        &self.intervals
    }

    /// Adds `[from, to)`; returns how many of its milliseconds were new.
    pub fn insert(&mut self, from: u64, to: u64) -> Result<u64, InvalidCoverage> {
        if from >= to {
            return Ok(0);
        }
        // Everything that overlaps or touches [from, to) melts into it.
        let first = self.intervals.partition_point(|(_, end)| *end < from);
        let last = self.intervals.partition_point(|(start, _)| *start <= to);
        let melted = &self.intervals[first..last];
        if melted.is_empty() && self.intervals.len() >= INTERVALS_MAX {
            return Err(InvalidCoverage::TooFragmented);
        }
        let known: u64 = melted.iter().map(|(start, end)| end - start).sum();
        let start = melted.first().map_or(from, |(start, _)| from.min(*start));
        let end = melted.last().map_or(to, |(_, end)| to.max(*end));
        self.intervals.splice(first..last, std::iter::once((start, end)));
        Ok(end - start - known)
    }

    /// Proven milliseconds within `[from, to)`.
    pub fn millis_within(&self, from: u64, to: u64) -> u64 {
        let first = self.intervals.partition_point(|(_, end)| *end <= from);
        let inside = self.intervals[first..].iter().take_while(|(start, _)| *start < to);
        inside.map(|(start, end)| (*end).min(to).saturating_sub((*start).max(from))).sum()
    }

    /// The end of the last proven millisecond before `limit`.
    pub fn frontier(&self, limit: u64) -> Option<u64> {
        let after = self.intervals.partition_point(|(start, _)| *start < limit);
        self.intervals[..after].last().map(|(_, end)| (*end).min(limit))
    }

    /// Where `millis` proven milliseconds from `from` on are complete; `None` when there are fewer.
    pub fn reach(&self, from: u64, millis: u64) -> Option<u64> {
        let mut left = millis;
        let ahead = self.intervals.iter().filter(|(_, end)| *end > from);
        for (start, end) in ahead.map(|(start, end)| ((*start).max(from), *end)) {
            if left <= end - start {
                return Some(start + left);
            }
            left -= end - start;
        }
        None
    }

    /// What lies before `at`, and what lies from `at` on.
    pub fn split(&self, at: u64) -> (Self, Self) {
        let clipped = |low: u64, high: u64| Self {
            intervals: self
                .intervals
                .iter()
                .map(|(start, end)| ((*start).max(low), (*end).min(high)))
                .filter(|(start, end)| start < end)
                .collect(),
        };
        (clipped(0, at), clipped(at, u64::MAX))
    }
}

impl TryFrom<Vec<(u64, u64)>> for Coverage {
    type Error = InvalidCoverage;
    fn try_from(intervals: Vec<(u64, u64)>) -> Result<Self, InvalidCoverage> {
        if intervals.len() > INTERVALS_MAX {
            return Err(InvalidCoverage::TooFragmented);
        }
        let full = intervals.iter().all(|(start, end)| start < end);
        let apart = intervals.windows(2).all(|pair| pair[0].1 < pair[1].0);
        if full && apart { Ok(Self { intervals }) } else { Err(InvalidCoverage::NotCanonical) }
    }
}

impl From<Coverage> for Vec<(u64, u64)> {
    fn from(coverage: Coverage) -> Self {
        coverage.intervals
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(intervals: &[(u64, u64)]) -> Coverage {
        let mut coverage = Coverage::default();
        for (from, to) in intervals {
            coverage.insert(*from, *to).unwrap();
        }
        coverage
    }

    #[test]
    fn neighbours_merge_and_fragments_are_bounded() {
        assert_eq!(of(&[(0, 10), (20, 30), (10, 20)]).intervals(), [(0, 30)]);
        assert_eq!(of(&[(5, 5), (7, 3)]).intervals(), []);
        let full: Vec<(u64, u64)> = (0..).step_by(2).take(INTERVALS_MAX).map(|at| (at, at + 1)).collect();
        let mut coverage = of(&full);
        assert_eq!(coverage.insert(1_000_000, 1_000_001), Err(InvalidCoverage::TooFragmented));
        assert_eq!(coverage.insert(1, 2), Ok(1));
        assert!(Coverage::try_from(vec![(0, 1), (1, 2)]).is_err());
        assert!(Coverage::try_from(vec![(3, 3)]).is_err());
    }

    proptest! {
        #[test]
        fn a_union_counts_each_millisecond_once_in_any_order(
            intervals in prop::collection::vec((0u64..200, 0u64..40), 0..20), window in (0u64..250, 0u64..250), cut in 0u64..250, turn: usize,
        ) {
            let intervals: Vec<(u64, u64)> = intervals.iter().map(|(from, len)| (*from, from + len)).collect();
            let mut shuffled = [intervals.clone(), intervals.clone()].concat();
            let turned = if shuffled.is_empty() { 0 } else { turn % shuffled.len() };
            shuffled.rotate_left(turned);
            shuffled.reverse();
            let coverage = of(&intervals);
            prop_assert_eq!(&coverage, &of(&shuffled));
            prop_assert_eq!(&coverage, &Coverage::try_from(coverage.intervals().to_vec()).unwrap());

            let proven = |at: u64| intervals.iter().any(|(from, to)| (*from..*to).contains(&at));
            let (low, high) = window;
            let expected = (low..high).filter(|at| proven(*at)).count();
            prop_assert_eq!(coverage.millis_within(low, high), u64::try_from(expected).unwrap());
            prop_assert_eq!(coverage.frontier(high), (0..high).rev().find(|at| proven(*at)).map(|at| at + 1));
            let inside = coverage.millis_within(low, 300);
            let reached = |millis| (low..=300).find(|at| coverage.millis_within(low, *at) == millis);
            for millis in [1, inside / 2, inside].into_iter().filter(|millis| (1..=inside).contains(millis)) {
                prop_assert_eq!(coverage.reach(low, millis), reached(millis));
            }
            prop_assert_eq!(coverage.reach(low, inside + 1), None);
            let (before, after) = coverage.split(cut);
            prop_assert_eq!(before.millis_within(0, 300), coverage.millis_within(0, cut));
            prop_assert_eq!(after.millis_within(0, 300), coverage.millis_within(cut, 300));
        }
    }
}
