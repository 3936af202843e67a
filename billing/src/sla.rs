//! Service credits: what a promise that we did not keep is worth.
//!
//! Only facts of our own record make an incident, and each kind has its own beginning and end, so one incident is credited once. A
//! credit is credit, drawn before cash; it expires never and is not paid out.
//!
//! | incident | what it is | credited |
//! |---|---|---|
//! | `host_fault` | a run ended by a fault of ours (host lost or in error, card or peer lost, pool no longer proven) | what the run had cost since its start, at most 24 hours of its price |
//! | `degraded` | a run that worked, but not as sold, for 5 minutes or longer; its card is not billed meanwhile | a share of its price for that time |
//! | `unreachable` | the host of a run was silent for 5 minutes or longer; what ran there is billed for proven seconds | a share of its price for that time |
//!
//! | length of a degraded or unreachable time | share of the price |
//! |---|---|
//! | below 5 minutes | nothing |
//! | from 5 minutes | 10 % |
//! | from 1 hour | 30 % |
//! | from 4 hours | 100 %, and never more than 24 hours' worth |

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::money::Micros;
use crate::rate::{Rate, Seconds};

/// The most that one incident is credited for, in seconds of the run's price.
pub const CREDITED_SECONDS_MAX: i64 = 24 * 3600;

/// From so many seconds on, so many percent of the price; the longest first.
pub const SHARES: [(i64, u32); 3] = [(4 * 3600, 100), (3600, 30), (300, 10)];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IncidentKind {
    HostFault,
    Degraded,
    Unreachable,
}

/// A text that names no kind of incident.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown kind of incident")]
pub struct UnknownIncidentKind;

impl IncidentKind {
    pub const ALL: [Self; 3] = [Self::HostFault, Self::Degraded, Self::Unreachable];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HostFault => "host_fault",
            Self::Degraded => "degraded",
            Self::Unreachable => "unreachable",
        }
    }
}

impl fmt::Display for IncidentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for IncidentKind {
    type Err = UnknownIncidentKind;
    fn from_str(text: &str) -> Result<Self, UnknownIncidentKind> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownIncidentKind)
    }
}

/// What is credited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worth {
    pub share_percent: u32,
    pub amount: Micros,
}

/// A run that we ended: what it had cost, at most [`CREDITED_SECONDS_MAX`] of its price, less what was credited for silent times of it
/// before. No second is given back more than once.
pub fn of_lost_run(rate: Rate, cost: Micros, credited: Micros) -> Worth {
    let due = cost.min(rate.charged(most()));
    Worth { share_percent: 100, amount: Micros::new((due.get() - credited.get()).max(0)) }
}

/// A time in which a run was not as sold.
pub fn of_bad_time(rate: Rate, length: Seconds) -> Worth {
    let share = SHARES.into_iter().find(|(from, _)| length.get() >= *from).map_or(0, |(_, share)| share);
    let whole = rate.charged(length.min(most())).get();
    // At most 10^12 an hour for a day: no product passes an i64.
    Worth {
        share_percent: share,
        amount: Micros::new(whole / 100 * i64::from(share) + whole % 100 * i64::from(share) / 100),
    }
}

fn most() -> Seconds {
    Seconds::new(CREDITED_SECONDS_MAX).unwrap_or(Seconds::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_is_worth_more_and_a_day_is_the_most() {
        let rate = Rate::per_hour(Micros::new(2_400_000)).unwrap();
        let worth = |seconds| {
            let worth = of_bad_time(rate, Seconds::new(seconds).unwrap());
            (worth.share_percent, worth.amount.get())
        };
        assert_eq!(worth(299), (0, 0));
        assert_eq!(worth(300), (10, 20_000));
        assert_eq!(worth(3_599), (10, 239_933));
        assert_eq!(worth(3_600), (30, 720_000));
        assert_eq!(worth(4 * 3_600), (100, 9_600_000));
        assert_eq!(worth(30 * 3_600), (100, 57_600_000));
        assert_eq!(of_lost_run(rate, Micros::new(123), Micros::ZERO).amount.get(), 123);
        assert_eq!(of_lost_run(rate, Micros::new(i64::MAX), Micros::ZERO).amount.get(), 57_600_000);
        assert_eq!(of_lost_run(rate, Micros::new(123), Micros::new(100)).amount.get(), 23);
        assert_eq!(of_lost_run(rate, Micros::new(123), Micros::new(124)).amount, Micros::ZERO);
        let most = of_bad_time(Rate::MAX, Seconds::MAX).amount;
        assert_eq!(most, Rate::MAX.charged(Seconds::new(CREDITED_SECONDS_MAX).unwrap()));
    }
}
