//! One host of the fleet: its shape by reference, its cards and links in full.

use tarn_protocol::hardware::{LinkClass, LinkGrade};
use tarn_protocol::ids::{CertificateId, GpuUuid, HostId};

use super::bucket::{BucketKey, Standing};
use crate::card_set::CardSet;

#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub id: HostId,
    pub region: u32,
    pub topology: u32,
    pub standing: Standing,
    pub healthy: CardSet,
    pub warned: CardSet,
    /// In no lease.
    pub idle: CardSet,
    /// By slot.
    pub cards: Vec<GpuUuid>,
    /// Row by row, `links[from * cards + to]`; certified ones only.
    pub links: Vec<Option<LinkFacts>>,
    pub bucket: Option<u32>,
}

/// One certified ordered link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkFacts {
    pub class: LinkClass,
    pub grade: LinkGrade,
    pub read_mb_per_second: u64,
    pub write_mb_per_second: u64,
    pub certificate_id: CertificateId,
}

impl Host {
    pub fn bucket_key(&self) -> BucketKey {
        BucketKey {
            region: self.region,
            topology: self.topology,
            standing: self.standing,
            healthy: self.healthy,
            warned: self.warned,
            free: self.idle.both(self.healthy),
        }
    }

    pub fn link(&self, from: usize, to: usize) -> Option<&LinkFacts> {
        self.links[from * self.cards.len() + to].as_ref()
    }
}
