//! The resolved host: each card by UUID, each ordered pair with its link. Written once as `host.json`, read by both
//! libraries; what changes at run time (use, faults) lives in [`crate::state`].

use serde::{Deserialize, Serialize};

use crate::preset::{Card, Preset};

const MIB: u64 = 1 << 20;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    pub preset: String,
    pub driver_version: String,
    pub cuda_version: i32,
    pub iommu_translating: bool,
    pub nvswitch: bool,
    pub nvlink_version: u32,
    pub nvlink_mbps_per_link: u64,
    pub host_link_mbps: u64,
    pub whole_address_ranges: bool,
    pub latency: bool,
    pub card: Card,
    pub gpus: Vec<Gpu>,
    /// Row-major, `from * gpus.len() + to`; the diagonal is the card itself.
    pub links: Vec<Link>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Gpu {
    pub index: usize,
    /// `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
    pub uuid: String,
    pub serial: String,
    pub pci: String,
    pub switch: u32,
    pub numa: u32,
    pub memory_bytes: u64,
    pub reserved_bytes: u64,
    pub context_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkClass {
    /// The card's own memory.
    Own,
    Nvlink,
    PcieP2p,
    None,
}

/// How kernels and copy engines of one card reach another card's memory. Bandwidths are MB/s.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Link {
    pub class: LinkClass,
    pub nvlinks: u32,
    pub kernel_read_mbps: u64,
    pub kernel_write_mbps: u64,
    pub copy_mbps: u64,
    pub latency_ns: u64,
    pub atomics: bool,
}

impl Machine {
    /// Resolves a preset; the same seed always gives the same UUIDs and serials.
    pub fn resolve(preset: &Preset, seed: u64) -> Self {
        let gpus: Vec<Gpu> = (0..preset.gpus.len()).map(|index| Gpu::resolve(preset, index, seed)).collect();
        let count = gpus.len();
        let links = (0..count * count).map(|at| Link::resolve(preset, at / count, at % count)).collect();
        Self {
            preset: preset.name.clone(),
            driver_version: preset.driver_version.clone(),
            cuda_version: preset.cuda_version,
            iommu_translating: preset.iommu_translating,
            nvswitch: preset.nvswitch,
            nvlink_version: preset.nvlink.version,
            nvlink_mbps_per_link: preset.nvlink.mbps_per_link,
            host_link_mbps: preset.host_link_mbps,
            whole_address_ranges: preset.whole_address_ranges,
            latency: preset.latency,
            card: preset.card.clone(),
            gpus,
            links,
        }
    }

    pub fn link(&self, from: usize, to: usize) -> &Link {
        &self.links[from * self.gpus.len() + to]
    }

    pub fn by_uuid(&self, uuid: &str) -> Option<usize> {
        self.gpus.iter().position(|gpu| gpu.uuid == uuid)
    }
}

impl Gpu {
    fn resolve(preset: &Preset, index: usize, seed: u64) -> Self {
        let slot = &preset.gpus[index];
        let high = scramble(seed ^ ((index as u64 + 1) << 32));
        let low = scramble(high ^ seed);
        let uuid = format!(
            "GPU-{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xfff,
            0x8000 | ((low >> 48) & 0x3fff),
            low & 0xffff_ffff_ffff
        );
        Self {
            index,
            uuid,
            serial: format!("{:013}", 1_320_000_000_000 + low % 1_000_000_000),
            pci: slot.pci.clone(),
            switch: slot.switch,
            numa: slot.numa,
            memory_bytes: preset.card.memory_mib * MIB,
            reserved_bytes: preset.card.reserved_mib * MIB,
            context_bytes: preset.card.context_mib * MIB,
        }
    }

    /// The UUID's sixteen bytes, as `cuDeviceGetUuid` answers them.
    pub fn uuid_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let digits: Vec<u8> = self.uuid.bytes().skip(4).filter(|digit| *digit != b'-').collect();
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            *byte = pair.iter().fold(0, |value, digit| value << 4 | hexadecimal(*digit));
        }
        bytes
    }

    /// Domain, bus, device.
    pub fn pci_numbers(&self) -> (u32, u32, u32) {
        let mut parts = self.pci.split([':', '.']).map(|part| u32::from_str_radix(part, 16).unwrap_or(0));
        let mut next = || parts.next().unwrap_or(0);
        (next(), next(), next())
    }
}

impl Link {
    fn resolve(preset: &Preset, from: usize, to: usize) -> Self {
        let nvlinks = preset
            .bridges
            .iter()
            .find(|bridge| bridge.between == [from, to] || bridge.between == [to, from])
            .map_or(if preset.nvswitch { 18 } else { 0 }, |bridge| bridge.links);
        let same_switch = preset.gpus[from].switch == preset.gpus[to].switch;
        let over_pcie = if same_switch { preset.p2p_within_switch } else { preset.p2p_across_switches };
        let (card, nvlink, pcie) = (&preset.card, &preset.nvlink, &preset.pcie_p2p);
        let link = |class, nvlinks, reads, writes, copies, latency_ns, atomics| Self {
            class,
            nvlinks,
            kernel_read_mbps: reads,
            kernel_write_mbps: writes,
            copy_mbps: copies,
            latency_ns,
            atomics,
        };
        if from == to {
            let (reads, writes) = (card.kernel_read_mbps, card.kernel_write_mbps);
            link(LinkClass::Own, 0, reads, writes, card.copy_mbps, 500, true)
        } else if nvlinks > 0 {
            let (reads, writes) = (nvlink.kernel_read_mbps, nvlink.kernel_write_mbps);
            link(
                LinkClass::Nvlink,
                nvlinks,
                reads,
                writes,
                nvlink.copy_mbps,
                nvlink.latency_ns,
                nvlink.atomics,
            )
        } else if over_pcie {
            let (reads, writes) = (pcie.kernel_read_mbps, pcie.kernel_write_mbps);
            link(LinkClass::PcieP2p, 0, reads, writes, pcie.copy_mbps, pcie.latency_ns, pcie.atomics)
        } else {
            // Without peer access a copy bounces through host memory.
            link(LinkClass::None, 0, 0, 0, preset.host_link_mbps / 2, 8000, false)
        }
    }
}

fn hexadecimal(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => 0,
    }
}

/// SplitMix64's finaliser: a seed's neighbours give unrelated ids.
fn scramble(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_box_holds_two_pools_of_four_of_at_least_95_gib() {
        let machine = Machine::resolve(&Preset::load("rtx4090-x8-seed").unwrap(), 7);
        for cards in [[0, 1, 2, 3], [4, 5, 6, 7]] {
            let total: u64 = cards.iter().map(|gpu| machine.gpus[*gpu].memory_bytes).sum();
            assert!(total >= 95 << 30);
            for (from, to) in cards.iter().flat_map(|from| cards.iter().map(move |to| (*from, *to))) {
                assert_ne!(machine.link(from, to).class, LinkClass::None);
            }
        }
        assert_eq!(machine.link(0, 1).class, LinkClass::Nvlink);
        assert_eq!(machine.link(1, 2).class, LinkClass::PcieP2p);
        assert_eq!(machine.link(3, 4).class, LinkClass::None);
    }

    #[test]
    fn a_seed_gives_the_same_distinct_uuids_again() {
        let preset = Preset::load("h200-x8-nvswitch").unwrap();
        let (once, again) = (Machine::resolve(&preset, 1), Machine::resolve(&preset, 1));
        let mut uuids: Vec<_> = once.gpus.iter().map(|gpu| gpu.uuid.clone()).collect();
        assert!(once.gpus.iter().zip(&again.gpus).all(|(a, b)| a.uuid == b.uuid));
        uuids.sort();
        uuids.dedup();
        assert_eq!(uuids.len(), 8);
        let number = u128::from_be_bytes(once.gpus[0].uuid_bytes());
        assert_eq!(format!("{number:032x}"), once.gpus[0].uuid[4..].replace('-', ""));
    }
}
