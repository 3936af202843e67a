//! A placed set: which card leads, and in which order the others serve it.

use std::cmp::Reverse;

use tarn_protocol::control::DesiredDonor;
use tarn_protocol::hardware::{LinkClass, LinkGrade};
use tarn_protocol::ids::{CertificateId, GpuUuid, HostId};

use crate::card_set::CardSet;
use crate::choice::{Choice, Score};
use crate::fleet::{Fleet, Host};
use crate::topology::{Floor, Topology};

/// The cards of one future lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub host_id: HostId,
    pub primary: GpuUuid,
    /// Fastest first, by measured read bandwidth from the primary.
    pub donors: Vec<PlacedDonor>,
    pub score: Score,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedDonor {
    pub uuid: GpuUuid,
    pub link_class: LinkClass,
    pub grade: LinkGrade,
    pub read_mb_per_second: u64,
    pub write_mb_per_second: u64,
    pub certificate_id: CertificateId,
}

impl Placed {
    /// Primary first.
    pub fn cards(&self) -> impl Iterator<Item = &GpuUuid> {
        std::iter::once(&self.primary).chain(self.donors.iter().map(|donor| &donor.uuid))
    }

    /// Class of the weakest link; `None` for a single card, which needs no link.
    pub fn link_class(&self) -> Option<LinkClass> {
        self.donors.iter().map(|donor| donor.link_class).min()
    }
}

impl From<&PlacedDonor> for DesiredDonor {
    fn from(donor: &PlacedDonor) -> Self {
        Self {
            uuid: donor.uuid.clone(),
            link_class: donor.link_class,
            grade: donor.grade,
            read_mb_per_second: donor.read_mb_per_second,
            certificate_id: Some(donor.certificate_id.clone()),
        }
    }
}

/// Turns a chosen set into primary and donors. The primary is the card with the best weakest link; among equals the one whose
/// donors, fastest first, read fastest; then the lowest slot.
pub(super) fn placed(fleet: &Fleet, host: u32, choice: Choice, floor: Floor) -> Placed {
    let host = fleet.host(host);
    let topology = fleet.topology(host.topology);
    let primary = choice
        .set
        .iter()
        .filter_map(|card| Some((topology.star(card, choice.set, floor)?, card)))
        .max_by_key(|&(weakest, card)| (weakest, speeds(host, card, choice.set), Reverse(card)))
        .map(|(_, card)| card)
        .expect("a chosen set has a primary that reaches every other card");
    let donors = donors(host, topology, primary, choice.set);
    Placed { host_id: host.id.clone(), primary: host.cards[primary].clone(), donors, score: choice.score }
}

fn speeds(host: &Host, primary: usize, set: CardSet) -> Vec<u64> {
    let others = set.minus(CardSet::one(primary));
    let mut speeds: Vec<u64> =
        others.iter().filter_map(|card| Some(host.link(primary, card)?.read_mb_per_second)).collect();
    speeds.sort_unstable_by_key(|speed| Reverse(*speed));
    speeds
}

fn donors(host: &Host, topology: &Topology, primary: usize, set: CardSet) -> Vec<PlacedDonor> {
    let mut donors: Vec<(usize, PlacedDonor)> = set
        .minus(CardSet::one(primary))
        .iter()
        .filter_map(|card| {
            let link = host.link(primary, card)?;
            let pair = topology.pair(primary, card)?;
            let donor = PlacedDonor {
                uuid: host.cards[card].clone(),
                // Of the two directions the worse: that is what the pool is sold as.
                link_class: pair.class,
                grade: pair.grade,
                read_mb_per_second: link.read_mb_per_second,
                write_mb_per_second: link.write_mb_per_second,
                certificate_id: link.certificate_id.clone(),
            };
            Some((card, donor))
        })
        .collect();
    donors.sort_by_key(|(card, donor)| (Reverse(donor.read_mb_per_second), *card));
    donors.into_iter().map(|(_, donor)| donor).collect()
}
