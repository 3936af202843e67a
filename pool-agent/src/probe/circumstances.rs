//! What is known of a pair beside its probe, and what of it forbids a pool before any byte is moved.

use tarn_protocol::hardware::{Gpu, LinkClass};
use tarn_protocol::ids::GpuUuid;
use tarn_protocol::units::Bytes;

use super::pcie_path;
use crate::nvml::host::HostCards;

/// What the loaded module says of itself.
pub const MODULE_TEXT: &str = "/proc/driver/nvidia/version";

/// The loaded kernel module, as far as it can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleFlavour {
    Open,
    Stock,
    /// Gives peer access that the vendor's own module does not: consumer cards without NVLink.
    Patched,
}

impl ModuleFlavour {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Stock => "stock",
            Self::Patched => "patched",
        }
    }

    /// From the module's own text (`None` where none is loaded) and from what it allows: stock modules give GeForce cards since Ada no
    /// peer access, so whoever has it runs a patched one.
    pub fn tell(text: Option<&str>, gpus: &[&Gpu], peers_over_pcie: bool) -> Option<Self> {
        let consumer = |gpu: &&Gpu| gpu.model.contains("GeForce") && capability(gpu) >= (8, 9);
        if peers_over_pcie && gpus.iter().any(consumer) {
            return Some(Self::Patched);
        }
        text.map(|text| if text.contains("Open Kernel Module") { Self::Open } else { Self::Stock })
    }
}

fn capability(gpu: &Gpu) -> (u32, u32) {
    let (major, minor) = gpu.compute_capability.split_once('.').unwrap_or_default();
    (major.parse().unwrap_or(0), minor.parse().unwrap_or(0))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Circumstances {
    pub class: LinkClass,
    /// A trial of one card with itself.
    pub same_card: bool,
    pub same_switch: bool,
    /// Decimal megabytes per second and direction over all links of the pair; 0 when it cannot be told.
    pub nominal_mb_per_second: u64,
    /// `None` when it cannot be told.
    pub iommu_translating: Option<bool>,
    pub acs_redirect: Option<bool>,
    pub module: Option<ModuleFlavour>,
    /// On either card; has been seen to corrupt peer traffic.
    pub display_active: bool,
    /// On either card.
    pub mig_enabled: bool,
    /// Of the card that owns the memory.
    pub bar1_bytes: Bytes,
    pub memory_bytes: Bytes,
}

impl Circumstances {
    /// What the tools say of a pair of this host's cards.
    pub fn of(cards: &HostCards, from: &GpuUuid, to: &GpuUuid) -> Self {
        let facts = |uuid: &GpuUuid| cards.card(uuid).map(|card| &card.facts.gpu);
        let gpus: Vec<&Gpu> = [from, to].into_iter().filter_map(facts).collect();
        let hint = cards.links().hint(from, to);
        let class = hint.map_or(LinkClass::None, |hint| hint.class);
        let owner = facts(to);
        let text = std::fs::read_to_string(MODULE_TEXT).ok();
        Self {
            class,
            same_card: from == to,
            same_switch: hint.is_some_and(|hint| hint.same_switch),
            nominal_mb_per_second: cards.links().nominal(from, to),
            iommu_translating: any(&gpus, |gpu| pcie_path::iommu_translating(&gpu.pci_bus_id)),
            acs_redirect: any(&gpus, |gpu| pcie_path::acs_redirect(&gpu.pci_bus_id)),
            module: ModuleFlavour::tell(text.as_deref(), &gpus, class == LinkClass::PcieP2p),
            display_active: gpus.iter().any(|gpu| gpu.display_active),
            mig_enabled: gpus.iter().any(|gpu| gpu.mig_enabled),
            bar1_bytes: owner.map_or(Bytes::new(0), |gpu| gpu.bar1_bytes),
            memory_bytes: owner.map_or(Bytes::new(0), |gpu| gpu.memory_bytes),
        }
    }

    /// Why these cards are no pool whatever a probe says: a reason code and what was found.
    pub fn forbid(&self) -> Option<(&'static str, String)> {
        if self.same_card {
            return None;
        }
        if self.mig_enabled {
            return Some(("mig_member", "a card of the pair is split by MIG".to_owned()));
        }
        // NVLink carries neither a display's traffic nor anything through BAR1.
        if self.class == LinkClass::Nvlink {
            return None;
        }
        if self.display_active {
            return Some(("display_active", "a card of the pair drives a display".to_owned()));
        }
        let window = self.bar1_bytes < self.memory_bytes;
        (self.class == LinkClass::PcieP2p && window).then(|| {
            let (bar1, memory) = (self.bar1_bytes.get() >> 20, self.memory_bytes.get() >> 20);
            ("bar1_too_small", format!("BAR1 shows {bar1} MiB of the card's {memory} MiB"))
        })
    }
}

/// True if any card's answer is; `None` if none answers.
fn any(gpus: &[&Gpu], ask: impl Fn(&Gpu) -> Option<bool>) -> Option<bool> {
    gpus.iter().filter_map(|gpu| ask(gpu)).reduce(|left, right| left || right)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use tarn_protocol::hardware::GpuHealth;

    pub const NVLINK: Circumstances = Circumstances {
        class: LinkClass::Nvlink,
        same_card: false,
        same_switch: true,
        nominal_mb_per_second: 56_000,
        iommu_translating: Some(false),
        acs_redirect: None,
        module: None,
        display_active: false,
        mig_enabled: false,
        bar1_bytes: Bytes::gib(32),
        memory_bytes: Bytes::gib(24),
    };
    pub const PCIE: Circumstances =
        Circumstances { class: LinkClass::PcieP2p, nominal_mb_per_second: 0, ..NVLINK };

    fn check(circumstances: Circumstances, expected: Option<&str>) {
        assert_eq!(circumstances.forbid().map(|(code, _)| code), expected, "{circumstances:?}");
    }

    #[test]
    fn p4_what_forbids_a_pool_is_said_before_any_byte_is_moved() {
        check(NVLINK, None);
        check(PCIE, None);
        for sound in [NVLINK, PCIE] {
            check(Circumstances { mig_enabled: true, ..sound }, Some("mig_member"));
        }
        check(Circumstances { display_active: true, ..PCIE }, Some("display_active"));
        check(Circumstances { display_active: true, ..NVLINK }, None);
        let small = Bytes::gib(16);
        check(Circumstances { bar1_bytes: small, ..PCIE }, Some("bar1_too_small"));
        check(Circumstances { bar1_bytes: small, ..NVLINK }, None);
        check(Circumstances { same_card: true, class: LinkClass::None, ..PCIE }, None);
    }

    #[test]
    fn a_module_that_gives_geforce_cards_peers_is_a_patched_one() {
        let gpu = |model: &str, capability: &str| Gpu {
            uuid: GpuUuid::from_bytes([1; 16]),
            model: model.to_owned(),
            serial: None,
            memory_bytes: Bytes::gib(24),
            bar1_bytes: Bytes::gib(32),
            pci_bus_id: "0000:01:00.0".to_owned(),
            minor: 0,
            numa_node: None,
            pcie_switch: None,
            compute_capability: capability.to_owned(),
            mig_enabled: false,
            display_active: false,
            health: GpuHealth::Ok,
        };
        let open = Some("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95");
        let (ada, hopper) = (gpu("NVIDIA GeForce RTX 4090", "8.9"), gpu("NVIDIA H200", "9.0"));
        let ampere = gpu("NVIDIA GeForce RTX 3090", "8.6");
        assert_eq!(ModuleFlavour::tell(open, &[&ada], true), Some(ModuleFlavour::Patched));
        assert_eq!(ModuleFlavour::tell(open, &[&ada], false), Some(ModuleFlavour::Open));
        assert_eq!(ModuleFlavour::tell(open, &[&hopper], true), Some(ModuleFlavour::Open));
        assert_eq!(
            ModuleFlavour::tell(Some("NVRM version: x"), &[&ampere], true),
            Some(ModuleFlavour::Stock)
        );
        assert_eq!(ModuleFlavour::tell(None, &[&hopper], true), None);
    }
}
