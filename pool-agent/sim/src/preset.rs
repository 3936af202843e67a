//! Presets: a host described by its card, its slots and how the slots reach each other.
//!
//! A preset says what the machine is made of; [`crate::machine`] says what follows from it for each card and each ordered
//! pair. Shipped presets are embedded, so `tarn-sim` needs no files beside it; a path to a TOML file works as well.

use std::path::Path;

use serde::{Deserialize, Serialize};

const SHIPPED: &[(&str, &str)] = &[
    ("rtx4090-x8-seed", include_str!("../presets/rtx4090-x8-seed.toml")),
    ("rtx4090-x8-stock", include_str!("../presets/rtx4090-x8-stock.toml")),
    ("rtx3090-x8-bridged", include_str!("../presets/rtx3090-x8-bridged.toml")),
    ("a100-x4", include_str!("../presets/a100-x4.toml")),
    ("h200-x8-nvswitch", include_str!("../presets/h200-x8-nvswitch.toml")),
    ("h200-x2", include_str!("../presets/h200-x2.toml")),
];

#[derive(Debug, thiserror::Error)]
pub enum PresetError {
    #[error("no preset {0:?}; shipped are {1}")]
    Unknown(String, String),
    #[error("preset file {0:?} cannot be read")]
    Read(String, #[source] std::io::Error),
    #[error("preset {0:?} is not valid")]
    Parse(String, #[source] toml::de::Error),
    #[error("preset {0:?} has {1} cards; 1 to {max} are possible", max = crate::layout::GPUS_MAX)]
    CardCount(String, usize),
    #[error("preset {0:?} bridges card {1}, which it does not have")]
    Bridge(String, usize),
}

/// A host as its author writes it. Bandwidths are MB/s (decimal), one direction.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    pub name: String,
    pub driver_version: String,
    /// As `cuDriverGetVersion` answers, e.g. 12080.
    pub cuda_version: i32,
    /// A translating IOMMU: capability calls say yes, peer writes vanish.
    pub iommu_translating: bool,
    pub host_link_mbps: u64,
    /// Every card reaches every other over NVLink through switches.
    pub nvswitch: bool,
    pub p2p_within_switch: bool,
    pub p2p_across_switches: bool,
    /// `cuMemGetAddressRange` answers whole reservations instead of segments.
    #[serde(default)]
    pub whole_address_ranges: bool,
    /// Copies and kernels really take their simulated time.
    #[serde(default)]
    pub latency: bool,
    pub card: Card,
    pub nvlink: NvLink,
    pub pcie_p2p: PciePeer,
    #[serde(rename = "gpu")]
    pub gpus: Vec<Slot>,
    #[serde(rename = "bridge", default)]
    pub bridges: Vec<Bridge>,
}

/// What every card of the host is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Card {
    pub name: String,
    pub architecture: String,
    pub compute_capability: [u32; 2],
    pub memory_mib: u64,
    /// Kept by the driver itself; used on an idle card.
    pub reserved_mib: u64,
    /// What one process's context costs on a card.
    pub context_mib: u64,
    pub bar1_mib: u64,
    pub multiprocessors: u32,
    pub l2_mib: u32,
    pub clock_mhz: u32,
    pub memory_clock_mhz: u32,
    pub memory_bus_bits: u32,
    pub pcie_generation: u32,
    pub pcie_width: u32,
    pub power_limit_mw: u32,
    pub idle_power_mw: u32,
    pub idle_temperature_c: u32,
    /// PCI ids, four hexadecimal digits.
    pub device_id: String,
    pub subsystem_id: String,
    pub ecc: bool,
    pub kernel_read_mbps: u64,
    pub kernel_write_mbps: u64,
    pub copy_mbps: u64,
    #[serde(default)]
    pub mig_enabled: bool,
    #[serde(default)]
    pub display_active: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NvLink {
    pub version: u32,
    pub mbps_per_link: u64,
    pub kernel_read_mbps: u64,
    pub kernel_write_mbps: u64,
    pub copy_mbps: u64,
    pub latency_ns: u64,
    pub atomics: bool,
}

/// Peer access over PCIe.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PciePeer {
    pub kernel_read_mbps: u64,
    pub kernel_write_mbps: u64,
    pub copy_mbps: u64,
    pub latency_ns: u64,
    pub atomics: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    /// `dddd:bb:dd.f`.
    pub pci: String,
    pub switch: u32,
    pub numa: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bridge {
    pub between: [usize; 2],
    pub links: u32,
}

/// Names of the shipped presets.
pub fn shipped() -> impl Iterator<Item = &'static str> {
    SHIPPED.iter().map(|(name, _)| *name)
}

impl Preset {
    /// A shipped preset by name, or any TOML file by path (anything with a `/` or ending in `.toml`).
    pub fn load(name_or_path: &str) -> Result<Self, PresetError> {
        let path = Path::new(name_or_path);
        let is_path = name_or_path.contains('/') || path.extension().is_some_and(|e| e == "toml");
        if is_path {
            let text = std::fs::read_to_string(path)
                .map_err(|error| PresetError::Read(name_or_path.to_owned(), error))?;
            return Self::parse(name_or_path, &text);
        }
        let text = SHIPPED.iter().find(|(name, _)| *name == name_or_path).map(|(_, text)| *text);
        let text = text.ok_or_else(|| {
            PresetError::Unknown(name_or_path.to_owned(), shipped().collect::<Vec<_>>().join(", "))
        })?;
        Self::parse(name_or_path, text)
    }

    fn parse(name: &str, text: &str) -> Result<Self, PresetError> {
        let preset: Self =
            toml::from_str(text).map_err(|error| PresetError::Parse(name.to_owned(), error))?;
        let count = preset.gpus.len();
        if count == 0 || count > crate::layout::GPUS_MAX {
            return Err(PresetError::CardCount(name.to_owned(), count));
        }
        let outside = preset.bridges.iter().flat_map(|bridge| bridge.between).find(|gpu| *gpu >= count);
        outside.map_or(Ok(preset), |gpu| Err(PresetError::Bridge(name.to_owned(), gpu)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_preset_parses_under_its_own_name() {
        for name in shipped() {
            assert_eq!(Preset::load(name).unwrap().name, name);
        }
    }
}
