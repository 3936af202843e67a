//! The control plane's clock: the only source of timestamps in Tarn, UTC and never backwards.
//!
//! Two calls never return the same instant and a later call never an earlier one, whatever the machine's wall clock does, so
//! that "before" in the ledger is "before" in the order of decisions. Hosts never issue timestamps.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tarn_protocol::units::Timestamp;

pub trait Clock: Send + Sync + Debug {
    fn now(&self) -> Timestamp;
}

/// The machine's wall clock, made monotonic: `max(wall, last + 1 µs)`.
#[derive(Debug, Default)]
pub struct SystemClock {
    last_micros: AtomicI64,
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        advance_to(&self.last_micros, wall_micros())
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the clock that everything else is handed")]
fn wall_micros() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX)
}

fn advance_to(last: &AtomicI64, wall: i64) -> Timestamp {
    let next = |last| Timestamp::issued(Timestamp::from_micros(last), Timestamp::from_micros(wall));
    match last.fetch_update(Ordering::AcqRel, Ordering::Acquire, |last| Some(next(last).as_micros())) {
        Ok(previous) | Err(previous) => next(previous),
    }
}

/// A clock that moves only when told to (and by 1 µs per reading): virtual time for tests and simulations.
#[derive(Debug)]
pub struct ManualClock {
    micros: AtomicI64,
}

impl ManualClock {
    pub const fn at(start: Timestamp) -> Self {
        Self { micros: AtomicI64::new(start.as_micros()) }
    }

    pub fn advance_seconds(&self, seconds: i64) {
        self.micros.fetch_add(seconds * 1_000_000, Ordering::AcqRel);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        advance_to(&self.micros, i64::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wall_clock_that_steps_back_never_takes_time_back() {
        let last = AtomicI64::new(0);
        let seen: Vec<i64> = [50, 70, 20, 20, 71, 90].map(|wall| advance_to(&last, wall).as_micros()).into();
        assert_eq!(seen, [50, 70, 71, 72, 73, 90]);
    }
}
