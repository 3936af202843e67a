//! An instance's claim on the cards of one host, and the generations that fence older claims.
//!
//! Every start makes a new lease with a higher generation. The database keeps a card in at most one live lease; the generation
//! keeps everybody honest in between: an agent stores the highest it has seen before it acts, the control plane ignores reports of
//! lower ones, and a release acts only on the very generation it was decided for.

use tarn_protocol::ids::{GpuUuid, HostId, InstanceId, LeaseId};
use tarn_protocol::units::{Generation, Timestamp};

use crate::placement::Placed;

/// Which cards, for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    pub id: LeaseId,
    pub instance_id: InstanceId,
    pub host_id: HostId,
    pub generation: Generation,
    pub primary: GpuUuid,
    /// Fastest first.
    pub donors: Vec<GpuUuid>,
}

impl Claim {
    /// The claim that a placement becomes.
    pub fn new(id: LeaseId, instance_id: InstanceId, generation: Generation, placed: &Placed) -> Self {
        Self {
            id,
            instance_id,
            host_id: placed.host_id.clone(),
            generation,
            primary: placed.primary.clone(),
            donors: placed.donors.iter().map(|donor| donor.uuid.clone()).collect(),
        }
    }

    /// Primary first.
    pub fn cards(&self) -> impl Iterator<Item = &GpuUuid> {
        std::iter::once(&self.primary).chain(&self.donors)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lease {
    Active(Claim),
    Released { claim: Claim, released_at: Timestamp },
}

/// Why a lease did not change. Both are normal outcomes of a race, not faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotReleased {
    #[error("decided for generation {decided}, the lease has {current}")]
    Stale { decided: Generation, current: Generation },
    #[error("released before")]
    Already,
}

impl Lease {
    pub const fn claim(&self) -> &Claim {
        match self {
            Self::Active(claim) | Self::Released { claim, .. } => claim,
        }
    }

    /// Ends the lease, if it is the one that the decision was about.
    pub fn release(self, decided: Generation, at: Timestamp) -> Result<Self, NotReleased> {
        match self {
            Self::Active(claim) if claim.generation == decided => {
                Ok(Self::Released { claim, released_at: at })
            }
            Self::Active(claim) => Err(NotReleased::Stale { decided, current: claim.generation }),
            Self::Released { .. } => Err(NotReleased::Already),
        }
    }
}

/// How a generation that somebody shows compares with the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fence {
    Current,
    /// May be read, never acted upon.
    Stale,
    /// More than we ever gave out: our own record is older than the world.
    Ahead,
}

pub fn fence(current: Generation, shown: Generation) -> Fence {
    match shown.cmp(&current) {
        std::cmp::Ordering::Less => Fence::Stale,
        std::cmp::Ordering::Equal => Fence::Current,
        std::cmp::Ordering::Greater => Fence::Ahead,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(generation: i64) -> Claim {
        let at = Timestamp::from_micros(1);
        Claim {
            id: LeaseId::new(at, 1),
            instance_id: InstanceId::new(at, 2),
            host_id: HostId::new(at, 3),
            generation: Generation::new(generation),
            primary: GpuUuid::from_bytes([1; 16]),
            donors: vec![GpuUuid::from_bytes([2; 16])],
        }
    }

    #[test]
    fn only_the_generation_that_was_decided_for_is_released_and_only_once() {
        let at = Timestamp::from_micros(9);
        for (held, decided) in [(2, 1), (2, 3)] {
            let refused = Lease::Active(claim(held)).release(Generation::new(decided), at);
            assert!(matches!(refused, Err(NotReleased::Stale { .. })), "{held} {decided}");
        }
        let released = Lease::Active(claim(2)).release(Generation::new(2), at).unwrap();
        assert_eq!(released.release(Generation::new(2), at), Err(NotReleased::Already));
    }
}
