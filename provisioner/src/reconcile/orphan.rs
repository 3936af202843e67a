//! Instances that a host shows and should not have.

use tarn_protocol::ids::HostId;
use tarn_protocol::units::{Generation, Timestamp};

use super::breaker::Brakes;
use crate::lifecycle::State;

/// How long an instance that nobody knows is kept for an operator to look at.
pub const ORPHAN_GRACE_SECONDS: i64 = 3_600;

/// What the store knows of an instance that a host reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OrphanRecord {
    /// No such id: a restored database, a host of another control plane, or worse.
    Unknown {
        first_seen_at: Timestamp,
    },
    Known {
        state: State,
        host_id: Option<HostId>,
        generation: Generation,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// It belongs here: the planner of the instance sees to it.
    Adopt,
    /// Publish the goal `absent` for it to this host.
    Remove,
    /// Leave it and call an operator.
    Quarantine,
}

/// What to do about an instance that `host` reports at `generation`.
pub fn orphan_remedy(
    record: &OrphanRecord,
    host: &HostId,
    generation: Generation,
    brakes: Brakes,
    now: Timestamp,
) -> Remedy {
    let destroy = match brakes {
        Brakes::Free => Remedy::Remove,
        Brakes::Frozen => Remedy::Quarantine,
    };
    match record {
        OrphanRecord::Unknown { first_seen_at } => {
            let kept = now.micros_since(*first_seen_at);
            if kept > ORPHAN_GRACE_SECONDS * 1_000_000 { destroy } else { Remedy::Quarantine }
        }
        // Our record is older than the world: destroying would be guessing.
        OrphanRecord::Known { generation: current, .. } if generation > *current => Remedy::Quarantine,
        OrphanRecord::Known { state: State::Terminated, .. } => destroy,
        OrphanRecord::Known { host_id, .. } if host_id.as_ref() == Some(host) => Remedy::Adopt,
        // Every move begins a generation: this one is what runs now, on a machine that has another name.
        OrphanRecord::Known { generation: current, .. } if generation == *current => Remedy::Quarantine,
        // Moved away: the new lease fences it, and the old copy must go before it confuses anyone.
        OrphanRecord::Known { .. } => destroy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l4_what_a_host_shows_is_adopted_removed_or_kept_for_an_operator() {
        let now = Timestamp::from_micros(0).plus_seconds(10_000);
        let (here, there) = (HostId::new(now, 1), HostId::new(now, 2));
        let known = |state, host: &HostId, generation| OrphanRecord::Known {
            state,
            host_id: Some(host.clone()),
            generation: Generation::new(generation),
        };
        let unknown = |seconds: i64| OrphanRecord::Unknown { first_seen_at: now.plus_seconds(-seconds) };
        for (record, free, frozen) in [
            (known(State::Running, &here, 2), Remedy::Adopt, Remedy::Adopt),
            (known(State::Running, &there, 3), Remedy::Remove, Remedy::Quarantine),
            (known(State::Running, &there, 2), Remedy::Quarantine, Remedy::Quarantine),
            (known(State::Stopped, &there, 2), Remedy::Quarantine, Remedy::Quarantine),
            (known(State::Terminated, &here, 2), Remedy::Remove, Remedy::Quarantine),
            (known(State::Terminated, &here, 1), Remedy::Quarantine, Remedy::Quarantine),
            (unknown(10), Remedy::Quarantine, Remedy::Quarantine),
            (unknown(ORPHAN_GRACE_SECONDS + 1), Remedy::Remove, Remedy::Quarantine),
        ] {
            let remedy = |brakes| orphan_remedy(&record, &here, Generation::new(2), brakes, now);
            assert_eq!((remedy(Brakes::Free), remedy(Brakes::Frozen)), (free, frozen), "{record:?}");
        }
    }
}
