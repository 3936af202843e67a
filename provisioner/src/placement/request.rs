//! What is asked for, and the same in the fleet's own numbers.

use std::collections::{BTreeMap, BTreeSet};

use tarn_protocol::hardware::{LinkClass, LinkGrade};
use tarn_protocol::ids::{GpuUuid, HostId};
use tarn_protocol::units::Bytes;

use super::Reason;
use crate::card_set::{CARDS_PER_HOST_MAX, CardSet};
use crate::fleet::Fleet;
use crate::topology::{Floor, Topology};

/// One shape, asked for once. `Request::cards(n)` gives `n` cards of any one model over any poolable link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Primary and donors together, at least one.
    pub cards: usize,
    /// Product name exactly as NVML gives it.
    pub model: Option<String>,
    /// Least memory of each card; 1 % less is accepted.
    pub card_memory_bytes: Bytes,
    /// Least class of the links between primary and donors. Pools never go below PCIe peer access.
    pub link_class: LinkClass,
    /// Least grade of those links. Pools never go below B.
    pub link_grade: LinkGrade,
    pub region: Option<String>,
    /// Only this host: for an instance whose directory lies there.
    pub host: Option<HostId>,
    /// Sets that failed before: no placed set contains one of them, and sets that share no card with them come first.
    /// A set of one card bars that card.
    pub excluded: Vec<BTreeSet<GpuUuid>>,
}

impl Request {
    pub fn cards(cards: usize) -> Self {
        Self {
            cards,
            model: None,
            card_memory_bytes: Bytes::new(0),
            link_class: LinkClass::PcieP2p,
            link_grade: LinkGrade::B,
            region: None,
            host: None,
            excluded: Vec::new(),
        }
    }
}

/// A filter that may name something the fleet has never seen.
#[derive(Debug, Clone, Copy)]
enum Filter {
    Any,
    Only(u32),
    Unknown,
}

impl Filter {
    fn new<T: ?Sized>(wanted: Option<&T>, find: impl FnOnce(&T) -> Option<u32>) -> Self {
        match wanted {
            None => Self::Any,
            Some(wanted) => find(wanted).map_or(Self::Unknown, Self::Only),
        }
    }

    fn accepts(self, number: u32) -> bool {
        match self {
            Self::Any => true,
            Self::Only(wanted) => wanted == number,
            Self::Unknown => false,
        }
    }
}

/// Excluded sets, by the host that has all of their cards.
#[derive(Debug, Clone, Default)]
pub(super) struct Excluded(BTreeMap<u32, Vec<CardSet>>);

impl Excluded {
    fn new(fleet: &Fleet, sets: &[BTreeSet<GpuUuid>]) -> Self {
        let mut by_host: BTreeMap<u32, Vec<CardSet>> = BTreeMap::new();
        for set in sets {
            let places: Option<Vec<(u32, u8)>> = set.iter().map(|uuid| fleet.locate(uuid)).collect();
            // A set with a card that is gone, or spread over hosts, can never be placed anyway.
            let Some(places) = places else { continue };
            let Some(&(host, _)) = places.first() else { continue };
            if places.iter().all(|&(other, _)| other == host) {
                let cards = places.iter().map(|&(_, card)| usize::from(card)).collect();
                by_host.entry(host).or_default().push(cards);
            }
        }
        Self(by_host)
    }

    pub fn touched(&self) -> Vec<u32> {
        self.0.keys().copied().collect()
    }

    pub fn on(&self, host: u32) -> &[CardSet] {
        self.0.get(&host).map_or(&[], Vec::as_slice)
    }
}

#[derive(Debug)]
pub(super) struct Resolved {
    pub cards: usize,
    pub floor: Floor,
    pub excluded: Excluded,
    region: Filter,
    host: Filter,
    /// By topology: the cards that match model and memory, or the reason why fewer than wanted do.
    allowed: Vec<Result<CardSet, Reason>>,
}

impl Resolved {
    pub fn new(fleet: &Fleet, request: &Request) -> Self {
        // One more than any host has is as impossible as a thousand more.
        let cards = request.cards.clamp(1, CARDS_PER_HOST_MAX + 1);
        let model = Filter::new(request.model.as_deref(), |name| fleet.model(name));
        let allowed = |topology| allowed(topology, model, request.card_memory_bytes, cards);
        Self {
            cards,
            floor: Floor::at_least(request.link_class, request.link_grade),
            excluded: Excluded::new(fleet, &request.excluded),
            region: Filter::new(request.region.as_deref(), |name| fleet.region(name)),
            host: Filter::new(request.host.as_ref(), |id| fleet.host_index(id)),
            allowed: fleet.topologies().iter().map(allowed).collect(),
        }
    }

    pub fn allowed(&self, topology: u32) -> Result<CardSet, Reason> {
        self.allowed[topology as usize]
    }

    pub fn region_matches(&self, region: u32) -> bool {
        self.region.accepts(region)
    }

    pub fn host_matches(&self, host: u32) -> bool {
        self.host.accepts(host)
    }

    /// Whether the request is for one host only, known or not.
    pub fn names_host(&self) -> bool {
        !matches!(self.host, Filter::Any)
    }

    /// The host that alone may answer, when the fleet knows it.
    pub fn pinned(&self) -> Option<u32> {
        match self.host {
            Filter::Only(host) => Some(host),
            Filter::Any | Filter::Unknown => None,
        }
    }
}

fn allowed(
    topology: &Topology,
    model: Filter,
    card_memory_bytes: Bytes,
    cards: usize,
) -> Result<CardSet, Reason> {
    let model = match model {
        Filter::Any => None,
        Filter::Only(model) => Some(model),
        Filter::Unknown => return Err(Reason::ModelMissing),
    };
    let allowed = topology.matching(model, card_memory_bytes);
    if allowed.len() >= cards {
        return Ok(allowed);
    }
    let of_model = topology.matching(model, Bytes::new(0));
    Err(match () {
        () if of_model.is_empty() => Reason::ModelMissing,
        () if of_model.len() < cards => Reason::TooFewCards,
        () => Reason::MemoryTooSmall,
    })
}
