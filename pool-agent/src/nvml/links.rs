//! What the tools say of each ordered pair: hints, on which probing order and grades lean and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus, TopologyLevel};
use nvml_wrapper::structs::device::{CudaComputeCapability, FieldId};
use nvml_wrapper::sys_exports::field_id::NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON;
use nvml_wrapper::{Device, Nvml};
use tarn_protocol::hardware::{LinkClass, LinkHint};
use tarn_protocol::ids::GpuUuid;

use super::card::{CardFacts, Nvlink};

const ASK_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Default)]
pub struct Links {
    hints: Vec<LinkHint>,
    switches: BTreeMap<GpuUuid, String>,
    nominal: BTreeMap<(GpuUuid, GpuUuid), u64>,
}

/// One pair as NVML sees it.
#[derive(Debug, Clone, Copy)]
struct Seen {
    same_switch: bool,
    peer_access: bool,
}

impl Links {
    pub fn hints(&self) -> &[LinkHint] {
        &self.hints
    }

    pub fn hint(&self, from: &GpuUuid, to: &GpuUuid) -> Option<&LinkHint> {
        self.hints.iter().find(|hint| hint.from == *from && hint.to == *to)
    }

    /// Decimal megabytes per second and direction over all NVLinks of the pair.
    pub fn nominal(&self, from: &GpuUuid, to: &GpuUuid) -> u64 {
        self.nominal.get(&(from.clone(), to.clone())).copied().unwrap_or(0)
    }

    pub fn switch_of(&self, uuid: &GpuUuid) -> Option<String> {
        self.switches.get(uuid).cloned()
    }
}

/// Asks about all pairs, each first card in a thread of its own. Pairs without an answer in time have no hint.
pub fn ask(nvml: &Arc<Nvml>, facts: &[CardFacts]) -> Links {
    let (told, tells) = channel();
    let uuids: Vec<GpuUuid> = facts.iter().map(|fact| fact.gpu.uuid.clone()).collect();
    for from in &uuids {
        let (nvml, told, from, uuids) = (Arc::clone(nvml), told.clone(), from.clone(), uuids.clone());
        std::thread::spawn(move || {
            for to in uuids.into_iter().filter(|to| *to != from) {
                if let Some(seen) = look(&nvml, &from, &to) {
                    let _late = told.send((from.clone(), to, seen));
                }
            }
        });
    }
    drop(told);
    let mut seen = Vec::new();
    while let Ok(pair) = tells.recv_timeout(ASK_WITHIN) {
        seen.push(pair);
    }
    seen.sort_by(|left, right| (&left.0, &left.1).cmp(&(&right.0, &right.1)));
    build(facts, &seen)
}

fn look(nvml: &Nvml, from: &GpuUuid, to: &GpuUuid) -> Option<Seen> {
    let first = nvml.device_by_uuid(from.as_str()).ok()?;
    let second = nvml.device_by_uuid(to.as_str()).ok()?;
    let level = nvml.topology_common_ancestor(&first, &second).ok()?;
    let granted = |index| matches!(first.p2p_status(&second, index), Ok(P2pStatus::Ok));
    Some(Seen {
        same_switch: matches!(
            level,
            TopologyLevel::Internal | TopologyLevel::Single | TopologyLevel::Multiple
        ),
        peer_access: granted(P2pCapabilitiesIndex::Read) && granted(P2pCapabilitiesIndex::Write),
    })
}

fn build(facts: &[CardFacts], seen: &[(GpuUuid, GpuUuid, Seen)]) -> Links {
    let by_uuid: BTreeMap<&GpuUuid, &CardFacts> = facts.iter().map(|fact| (&fact.gpu.uuid, fact)).collect();
    let buses: BTreeSet<&str> = facts.iter().map(|fact| fact.gpu.pci_bus_id.as_str()).collect();
    let mut links = Links { switches: switches(facts, seen), ..Links::default() };
    for (from, to, seen) in seen {
        let (Some(first), Some(second)) = (by_uuid.get(from), by_uuid.get(to)) else { continue };
        let nvlinks = nvlinks_between(first, second, &buses);
        let class = match (nvlinks, seen.peer_access) {
            (1.., _) => LinkClass::Nvlink,
            (0, true) => LinkClass::PcieP2p,
            (0, false) => LinkClass::None,
        };
        links.nominal.insert((from.clone(), to.clone()), u64::from(nvlinks) * first.nvlink.mb_per_second);
        links.hints.push(LinkHint {
            from: from.clone(),
            to: to.clone(),
            class,
            nvlinks,
            same_switch: seen.same_switch,
        });
    }
    links
}

/// Direct links, or what both have to a switch. MIG members have none.
fn nvlinks_between(first: &CardFacts, second: &CardFacts, cards: &BTreeSet<&str>) -> u32 {
    if first.gpu.mig_enabled || second.gpu.mig_enabled {
        return 0;
    }
    let toward =
        |nvlink: &Nvlink, bus: &str| nvlink.ends.iter().filter(|end| end.as_deref() == Some(bus)).count();
    let direct =
        toward(&first.nvlink, &second.gpu.pci_bus_id).min(toward(&second.nvlink, &first.gpu.pci_bus_id));
    // The end of a link that is no card of this host is a switch.
    let switched = |nvlink: &Nvlink| {
        nvlink.ends.iter().filter(|end| end.as_deref().is_none_or(|end| !cards.contains(end))).count()
    };
    let links = if direct > 0 { direct } else { switched(&first.nvlink).min(switched(&second.nvlink)) };
    u32::try_from(links).unwrap_or(0)
}

/// A name for each PCIe switch: the lowest bus id of its cards. A card under a switch of its own has its own.
fn switches(facts: &[CardFacts], seen: &[(GpuUuid, GpuUuid, Seen)]) -> BTreeMap<GpuUuid, String> {
    let mut names: BTreeMap<GpuUuid, String> =
        facts.iter().map(|fact| (fact.gpu.uuid.clone(), fact.gpu.pci_bus_id.clone())).collect();
    // As often as there are cards is enough for the lowest name to reach every card of a switch.
    for _ in 0..facts.len() {
        for (from, to, _) in seen.iter().filter(|(_, _, seen)| seen.same_switch) {
            if let (Some(left), Some(right)) = (names.get(from).cloned(), names.get(to).cloned()) {
                let lowest = left.min(right);
                names.insert(from.clone(), lowest.clone());
                names.insert(to.clone(), lowest);
            }
        }
    }
    names
}

/// What one link carries per direction, as the driver says, else by its version.
pub fn nvlink_speed(device: &Device<'_>, version: u32) -> u64 {
    let told = device.field_values_for(&[FieldId(NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON)]).ok();
    let told = told.and_then(|samples| {
        use nvml_wrapper::enums::device::SampleValue;
        match samples.into_iter().next()?.ok()?.value.ok()? {
            SampleValue::U32(value) => Some(u64::from(value)),
            SampleValue::U64(value) => Some(value),
            _ => None,
        }
    });
    told.filter(|speed| *speed > 0)
        .unwrap_or_else(|| published_speed(version, device.cuda_compute_capability().ok()))
}

/// What NVIDIA publishes for one link and direction: https://www.nvidia.com/en-us/data-center/nvlink/ and the GA102 white paper.
fn published_speed(version: u32, capability: Option<CudaComputeCapability>) -> u64 {
    let consumer_ampere = capability.is_some_and(|found| found.major == 8 && found.minor > 0);
    match version {
        0 => 0,
        1 => 20_000,
        3 if consumer_ampere => 14_062,
        2 | 3 => 25_000,
        4 => 26_562,
        5.. => 50_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_protocol::hardware::{Gpu, GpuHealth};
    use tarn_protocol::units::Bytes;

    fn card(number: u8, nvlink: Nvlink) -> CardFacts {
        CardFacts {
            gpu: Gpu {
                uuid: GpuUuid::from_bytes([number; 16]),
                model: "card".to_owned(),
                serial: None,
                memory_bytes: Bytes::gib(24),
                bar1_bytes: Bytes::gib(32),
                pci_bus_id: format!("0000:0{number}:00.0"),
                minor: number.into(),
                numa_node: None,
                pcie_switch: None,
                compute_capability: "8.9".to_owned(),
                mig_enabled: false,
                display_active: false,
                health: GpuHealth::Ok,
            },
            nvlink,
        }
    }

    fn seen(cards: &[CardFacts], same_switch: bool, peer_access: bool) -> Vec<(GpuUuid, GpuUuid, Seen)> {
        let uuids: Vec<GpuUuid> = cards.iter().map(|card| card.gpu.uuid.clone()).collect();
        crate::probe::schedule::ordered_pairs(&uuids)
            .into_iter()
            .map(|(from, to)| (from, to, Seen { same_switch, peer_access }))
            .collect()
    }

    fn direct(numbers: &[u8]) -> Nvlink {
        let ends = numbers.iter().map(|number| Some(format!("0000:0{number}:00.0"))).collect();
        Nvlink { ends, mb_per_second: 14_062 }
    }

    #[test]
    fn p8_direct_partial_switched_and_mig_links_are_counted_right() {
        let bridged =
            [card(1, direct(&[2, 2, 2, 2])), card(2, direct(&[1, 1, 1])), card(3, Nvlink::default())];
        let links = build(&bridged, &seen(&bridged, true, true));
        let [first, second, third] = [1, 2, 3].map(|number| GpuUuid::from_bytes([number; 16]));
        let hint = links.hint(&first, &second).unwrap();
        assert_eq!((hint.class, hint.nvlinks), (LinkClass::Nvlink, 3));
        assert_eq!(links.hint(&first, &third).unwrap().class, LinkClass::PcieP2p);
        assert_eq!(links.nominal(&first, &second), 3 * 14_062);
        assert_eq!(links.switch_of(&third), links.switch_of(&first));

        let switched = |number, links| {
            card(number, Nvlink { ends: vec![Some("0000:c0:00.0".to_owned()); links], ..Nvlink::default() })
        };
        let cards = [switched(1, 18), switched(2, 17)];
        assert_eq!(build(&cards, &seen(&cards, false, true)).hint(&first, &second).unwrap().nvlinks, 17);

        let mut cards = [switched(1, 18), switched(2, 18)];
        cards[1].gpu.mig_enabled = true;
        assert_eq!(
            build(&cards, &seen(&cards, false, false)).hint(&first, &second).unwrap().class,
            LinkClass::None
        );
    }
}
