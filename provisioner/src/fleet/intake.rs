//! Building the index from a snapshot.

use std::collections::HashMap;

use tarn_protocol::hardware::GpuHealth;
use tarn_protocol::ids::{GpuUuid, HostId};
use tarn_protocol::units::Bytes;

use super::{Fleet, Host, LinkFacts, Standing};
use crate::card_set::{CARDS_PER_HOST_MAX, CardSet};
use crate::snapshot::{GpuSnapshot, HostSnapshot, LinkSnapshot};
use crate::topology::{Kind, Pair, Shape, Topology, reaches};

/// Oldest driver branch whose virtual memory management and fabric handling are relied upon.
pub const DRIVER_MAJOR_MIN: u32 = 550;

/// A snapshot that cannot be true.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    #[error("card {0} is in the snapshot twice")]
    CardTwice(GpuUuid),
    #[error("host {0} is in the snapshot twice")]
    HostTwice(HostId),
    #[error("host {host} has {cards} cards, more than {CARDS_PER_HOST_MAX}")]
    TooManyCards { host: HostId, cards: usize },
}

/// Numbers for equal values, in order of first sight.
struct Interned<T>(HashMap<T, u32>);

impl<T: std::hash::Hash + Eq + Clone> Interned<T> {
    fn number(&mut self, value: &T) -> (u32, bool) {
        let next = u32::try_from(self.0.len()).expect("fewer values than cards");
        if let Some(&known) = self.0.get(value) {
            return (known, false);
        }
        self.0.insert(value.clone(), next);
        (next, true)
    }
}

pub(super) fn build(mut snapshot: Vec<HostSnapshot>) -> Result<Fleet, FleetError> {
    snapshot.sort_by(|a, b| a.id.cmp(&b.id));
    let mut fleet = Fleet::default();
    let mut models = Interned(HashMap::new());
    let mut regions = Interned(HashMap::new());
    let mut shapes = Interned(HashMap::new());
    for (index, mut host) in (0u32..).zip(snapshot) {
        host.gpus.sort_by(|a, b| (a.slot, &a.uuid).cmp(&(b.slot, &b.uuid)));
        if host.gpus.len() > CARDS_PER_HOST_MAX {
            return Err(FleetError::TooManyCards { host: host.id, cards: host.gpus.len() });
        }
        for (card, gpu) in (0u8..).zip(&host.gpus) {
            if fleet.card_of.insert(gpu.uuid.clone(), (index, card)).is_some() {
                return Err(FleetError::CardTwice(gpu.uuid.clone()));
            }
        }
        if fleet.host_of.insert(host.id.clone(), index).is_some() {
            return Err(FleetError::HostTwice(host.id));
        }
        let model_numbers = host
            .gpus
            .iter()
            .map(|gpu| {
                let (number, new) = models.number(&gpu.model);
                if new {
                    fleet.models.push(gpu.model.clone());
                }
                number
            })
            .collect::<Vec<u32>>();
        let (region, new) = regions.number(&host.region);
        if new {
            fleet.regions.push(host.region.clone());
        }
        let links = links(&host);
        let shape = shape(&host.gpus, &model_numbers, &links);
        let (topology, new) = shapes.number(&shape);
        if new {
            fleet.topologies.push(Topology::new(shape));
        }
        let entry = entry(host, region, topology, links);
        let idle = entry.idle;
        fleet.hosts.push(entry);
        fleet.settle(index, idle);
    }
    Ok(fleet)
}

fn entry(host: HostSnapshot, region: u32, topology: u32, links: Vec<Option<LinkFacts>>) -> Host {
    let cards_where = |test: fn(&GpuSnapshot) -> bool| -> CardSet {
        (0..).zip(&host.gpus).filter(|(_, gpu)| test(gpu)).map(|(card, _)| card).collect()
    };
    Host {
        region,
        topology,
        standing: standing(&host),
        healthy: cards_where(|gpu| gpu.health.accepts_placement()),
        warned: cards_where(|gpu| matches!(gpu.health, GpuHealth::Degraded { .. })),
        idle: cards_where(|gpu| gpu.lease.is_none()),
        cards: host.gpus.into_iter().map(|gpu| gpu.uuid).collect(),
        links,
        bucket: None,
        id: host.id,
    }
}

/// The lasting reason first: an old driver stays when the operator uncordons.
fn standing(host: &HostSnapshot) -> Standing {
    let major = host.driver_version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < DRIVER_MAJOR_MIN) {
        Standing::DriverTooOld
    } else if host.cordoned {
        Standing::Cordoned
    } else if host.unreachable {
        Standing::Unreachable
    } else {
        Standing::Open
    }
}

fn links(host: &HostSnapshot) -> Vec<Option<LinkFacts>> {
    let cards = host.gpus.len();
    let place: HashMap<&GpuUuid, usize> =
        host.gpus.iter().enumerate().map(|(card, gpu)| (&gpu.uuid, card)).collect();
    let mut table = vec![None; cards * cards];
    for link in host.links.iter().filter(|link| link.certified()) {
        let (Some(&from), Some(&to)) = (place.get(&link.from), place.get(&link.to)) else { continue };
        let facts = facts(link);
        let slot: &mut Option<LinkFacts> = &mut table[from * cards + to];
        // Two valid certificates of one pair: the older id loses, so that the answer does not depend on row order.
        if from != to && slot.as_ref().is_none_or(|known| known.certificate_id < facts.certificate_id) {
            *slot = Some(facts);
        }
    }
    table
}

fn facts(link: &LinkSnapshot) -> LinkFacts {
    LinkFacts {
        class: link.class,
        grade: link.grade,
        read_mb_per_second: link.read_mb_per_second,
        write_mb_per_second: link.write_mb_per_second,
        certificate_id: link.certificate_id.clone().expect("only certified links are kept"),
    }
}

fn shape(gpus: &[GpuSnapshot], models: &[u32], links: &[Option<LinkFacts>]) -> Shape {
    let cards = gpus.len();
    let pair = |at: usize| {
        let (a, b) = (at / cards, at % cards);
        let (there, back) = (links[a * cards + b].as_ref()?, links[b * cards + a].as_ref()?);
        let band = there.read_mb_per_second.min(back.read_mb_per_second).checked_ilog2().unwrap_or(0);
        Some(Pair {
            class: there.class.min(back.class),
            grade: there.grade.min(back.grade),
            band: u8::try_from(band).expect("at most 63"),
        })
    };
    let flagged = |test: fn(&GpuSnapshot) -> bool| -> CardSet {
        (0..cards).filter(|&card| test(&gpus[card])).collect()
    };
    Shape {
        kinds: kinds(gpus, models),
        places: places(gpus),
        pairs: (0..cards * cards).map(pair).collect(),
        mig: flagged(|gpu| gpu.mig_enabled),
        display: flagged(|gpu| gpu.display_active),
    }
}

/// Cards of one model belong together while their memory is within 1 % of the smallest of them.
fn kinds(gpus: &[GpuSnapshot], models: &[u32]) -> Vec<Kind> {
    let mut order: Vec<usize> = (0..gpus.len()).collect();
    order.sort_by_key(|&card| (models[card], gpus[card].memory_bytes));
    let mut kinds = vec![Kind { model: 0, memory_bytes: Bytes::new(0) }; gpus.len()];
    let mut current: Option<Kind> = None;
    for card in order {
        let own = Kind { model: models[card], memory_bytes: gpus[card].memory_bytes };
        let joins = |kind: &Kind| kind.model == own.model && reaches(kind.memory_bytes, own.memory_bytes);
        let kind = current.filter(joins).unwrap_or(own);
        current = Some(kind);
        kinds[card] = kind;
    }
    kinds
}

fn places(gpus: &[GpuSnapshot]) -> Vec<u8> {
    let mut seen: Vec<(Option<u32>, Option<&str>)> = Vec::new();
    gpus.iter()
        .map(|gpu| {
            let place = (gpu.numa_node, gpu.pcie_switch.as_deref());
            let at = seen.iter().position(|known| *known == place).unwrap_or_else(|| {
                seen.push(place);
                seen.len() - 1
            });
            u8::try_from(at).expect("at most 16 cards")
        })
        .collect()
}
