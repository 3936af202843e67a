//! All hosts that no request can tell apart, and what they answer.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use crate::card_set::{CARDS_PER_HOST_MAX, CardSet};
use crate::choice::Choice;
use crate::placement::Reason;
use crate::topology::Floor;

/// Whether a host takes new work at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    Open,
    DriverTooOld,
    Cordoned,
    Unreachable,
}

/// What a host of the bucket offers to a request of one size and floor.
pub(crate) type Verdict = Result<Choice, Reason>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct BucketKey {
    pub region: u32,
    pub topology: u32,
    pub standing: Standing,
    /// Cards whose health allows new work.
    pub healthy: CardSet,
    pub warned: CardSet,
    /// Healthy and in no lease.
    pub free: CardSet,
}

#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    pub key: BucketKey,
    pub hosts: BTreeSet<u32>,
    /// Where the fleet's list of occupied buckets names this one, while it holds a host.
    pub place: usize,
    verdicts: Vec<OnceLock<Verdict>>,
}

impl Bucket {
    pub fn new(key: BucketKey) -> Self {
        let verdicts = vec![OnceLock::new(); (CARDS_PER_HOST_MAX + 1) * Floor::COUNT];
        Self { key, hosts: BTreeSet::new(), place: 0, verdicts }
    }

    /// The remembered answer for `size` cards under `floor`, all matching cards of the shape being allowed.
    pub fn verdict(&self, size: usize, floor: Floor, compute: impl FnOnce() -> Verdict) -> Verdict {
        *self.verdicts[size * Floor::COUNT + floor.index()].get_or_init(compute)
    }
}
