//! The breaker: when a large part of the fleet seems lost at once, suspect ourselves and destroy nothing.

use tarn_protocol::units::Timestamp;

/// Destructive steps that nobody asked for, in one window, before they stop by themselves.
pub const DESTRUCTIVE_ACTIONS_MAX: u32 = 20;
/// How long such steps are counted together.
pub const WINDOW_SECONDS: i64 = 300;
const LOST_PERCENT_MAX: usize = 30;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Brakes {
    Free,
    /// Automatic destructive steps are withheld and an operator is called. What a tenant asks for still happens.
    Frozen,
}

/// When the window began that `now` lies in.
pub const fn window_of(now: Timestamp) -> Timestamp {
    let length = WINDOW_SECONDS * 1_000_000;
    Timestamp::from_micros(now.as_micros().div_euclid(length) * length)
}

/// Judges one window: hosts known, hosts lost in it, destructive steps already taken in it.
pub const fn judge(hosts_total: usize, hosts_lost: usize, destructive_actions: u32) -> Brakes {
    let too_many_lost = hosts_lost * 100 > hosts_total * LOST_PERCENT_MAX;
    if too_many_lost || destructive_actions >= DESTRUCTIVE_ACTIONS_MAX {
        Brakes::Frozen
    } else {
        Brakes::Free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_begins_at_a_multiple_of_its_length() {
        for (at, began) in [(0, 0), (299, 0), (300, 300), (301, 300), (-1, -300)] {
            let at = Timestamp::from_micros(at * 1_000_000);
            assert_eq!(window_of(at), Timestamp::from_micros(began * 1_000_000));
        }
    }

    #[test]
    fn more_than_thirty_percent_lost_or_too_many_actions_freeze() {
        for (total, lost, actions, wanted) in [
            (10, 3, 0, Brakes::Free),
            (10, 4, 0, Brakes::Frozen),
            (1, 1, 0, Brakes::Frozen),
            (0, 0, 0, Brakes::Free),
            (100, 0, DESTRUCTIVE_ACTIONS_MAX, Brakes::Frozen),
            (100, 30, DESTRUCTIVE_ACTIONS_MAX - 1, Brakes::Free),
        ] {
            assert_eq!(judge(total, lost, actions), wanted, "{lost} of {total}, {actions} actions");
        }
    }
}
