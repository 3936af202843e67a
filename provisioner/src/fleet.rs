//! The fleet in memory: hosts and cards from a snapshot, grouped so that a decision looks at a few dozen buckets, not at
//! every host.
//!
//! A [`bucket::Bucket`] holds all hosts that cannot be told apart by a request: same region, same shape, same standing, same
//! free cards. The answer to a request is computed once per bucket and remembered; `take` and `release` move one host to another
//! bucket. Indices live only in here: identity outside is the UUID. The database stays the truth of what is leased; a fleet is a
//! view of it that may be a moment old, and the unique index on live leases decides races.

mod bucket;
mod host;
mod intake;

use std::collections::HashMap;

use tarn_protocol::ids::{GpuUuid, HostId};

pub(crate) use bucket::{Bucket, Standing, Verdict};
pub(crate) use host::{Host, LinkFacts};
pub use intake::FleetError;

use crate::card_set::CardSet;
use crate::snapshot::HostSnapshot;
use crate::topology::Topology;
use bucket::BucketKey;

/// Why cards could not be taken or released; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TakeError {
    #[error("card {0} is not in the fleet")]
    UnknownCard(GpuUuid),
    #[error("card {0} is already in use")]
    InUse(GpuUuid),
    #[error("card {0} is not in use")]
    NotInUse(GpuUuid),
    #[error("card {0} is named twice")]
    Twice(GpuUuid),
}

#[derive(Debug, Clone, Default)]
pub struct Fleet {
    /// By host id, so that ties between hosts go the same way whatever order the store answered in.
    hosts: Vec<Host>,
    host_of: HashMap<HostId, u32>,
    card_of: HashMap<GpuUuid, (u32, u8)>,
    topologies: Vec<Topology>,
    models: Vec<String>,
    regions: Vec<String>,
    buckets: Vec<Bucket>,
    bucket_of: HashMap<BucketKey, u32>,
    /// Buckets that hold a host, in no order.
    occupied: Vec<u32>,
}

impl Fleet {
    /// Indexes a snapshot. The order of hosts, cards and links does not matter.
    pub fn new(snapshot: Vec<HostSnapshot>) -> Result<Self, FleetError> {
        intake::build(snapshot)
    }

    pub fn hosts_total(&self) -> usize {
        self.hosts.len()
    }

    pub fn cards_total(&self) -> usize {
        self.card_of.len()
    }

    /// Cards in no lease, whatever their health.
    pub fn cards_free(&self) -> usize {
        self.hosts.iter().map(|host| host.idle.len()).sum()
    }

    /// Marks cards as leased. All or none.
    pub fn take<'a>(&mut self, cards: impl IntoIterator<Item = &'a GpuUuid>) -> Result<(), TakeError> {
        self.change(cards, true)
    }

    /// Marks cards as free again. All or none.
    pub fn release<'a>(&mut self, cards: impl IntoIterator<Item = &'a GpuUuid>) -> Result<(), TakeError> {
        self.change(cards, false)
    }

    fn change<'a>(
        &mut self,
        cards: impl IntoIterator<Item = &'a GpuUuid>,
        take: bool,
    ) -> Result<(), TakeError> {
        let mut changes: Vec<(u32, CardSet)> = Vec::new();
        for uuid in cards {
            let &(host, card) = self.card_of.get(uuid).ok_or_else(|| TakeError::UnknownCard(uuid.clone()))?;
            let card = CardSet::one(usize::from(card));
            let idle = !self.hosts[host as usize].idle.both(card).is_empty();
            match (take, idle) {
                (true, false) => return Err(TakeError::InUse(uuid.clone())),
                (false, true) => return Err(TakeError::NotInUse(uuid.clone())),
                _ => {}
            }
            match changes.iter_mut().find(|(known, _)| *known == host) {
                Some((_, set)) if set.holds(card) => return Err(TakeError::Twice(uuid.clone())),
                Some((_, set)) => *set = set.union(card),
                None => changes.push((host, card)),
            }
        }
        for (host, set) in changes {
            let idle = self.hosts[host as usize].idle;
            let idle = if take { idle.minus(set) } else { idle.union(set) };
            self.settle(host, idle);
        }
        Ok(())
    }

    /// Puts a host whose idle cards changed into its bucket.
    fn settle(&mut self, host: u32, idle: CardSet) {
        let old = self.hosts[host as usize].bucket;
        if let Some(old) = old {
            self.leave(host, old);
        }
        let entry = &mut self.hosts[host as usize];
        entry.idle = idle;
        let key = entry.bucket_key();
        let bucket = *self.bucket_of.entry(key).or_insert_with(|| {
            self.buckets.push(Bucket::new(key));
            u32::try_from(self.buckets.len() - 1).expect("fewer buckets than cards")
        });
        entry.bucket = Some(bucket);
        let joined = &mut self.buckets[bucket as usize];
        if joined.hosts.is_empty() {
            joined.place = self.occupied.len();
            self.occupied.push(bucket);
        }
        joined.hosts.insert(host);
    }

    fn leave(&mut self, host: u32, bucket: u32) {
        let left = &mut self.buckets[bucket as usize];
        left.hosts.remove(&host);
        if left.hosts.is_empty() {
            let place = left.place;
            self.occupied.swap_remove(place);
            if let Some(&moved) = self.occupied.get(place) {
                self.buckets[moved as usize].place = place;
            }
        }
    }

    pub(crate) fn occupied(&self) -> impl Iterator<Item = &Bucket> {
        self.occupied.iter().map(|&bucket| &self.buckets[bucket as usize])
    }

    pub(crate) fn host(&self, host: u32) -> &Host {
        &self.hosts[host as usize]
    }

    pub(crate) fn host_index(&self, id: &HostId) -> Option<u32> {
        self.host_of.get(id).copied()
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = (u32, &Host)> {
        (0..).zip(self.hosts.iter())
    }

    pub(crate) fn topology(&self, topology: u32) -> &Topology {
        &self.topologies[topology as usize]
    }

    pub(crate) fn topologies(&self) -> &[Topology] {
        &self.topologies
    }

    pub(crate) fn locate(&self, uuid: &GpuUuid) -> Option<(u32, u8)> {
        self.card_of.get(uuid).copied()
    }

    pub(crate) fn model(&self, name: &str) -> Option<u32> {
        self.models.iter().position(|known| known == name).and_then(|at| u32::try_from(at).ok())
    }

    pub(crate) fn region(&self, name: &str) -> Option<u32> {
        self.regions.iter().position(|known| known == name).and_then(|at| u32::try_from(at).ok())
    }
}
