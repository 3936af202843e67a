//! What an agent found on its host: cards by UUID, links by ordered pair, and the certificates that prove links by data.

use serde::{Deserialize, Serialize};

use crate::ids::GpuUuid;
use crate::units::{Bytes, MonoMillis};

/// How two cards reach each other. Ordered: a later variant is never worse than an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkClass {
    None,
    PcieP2p,
    Nvlink,
}

impl LinkClass {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::PcieP2p => "pcie_p2p",
            Self::Nvlink => "nvlink",
        }
    }
}

/// What a certificate entitles a link to. Ordered from worst to best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkGrade {
    /// Host tier: no proven link, or a failed probe. Never counted as GPU memory.
    D,
    /// PCIe through the CPU: copies only.
    C,
    /// PCIe peer access under one switch, passed under load: pooling opt-in, no native atomics.
    B,
    /// NVLink with native atomics both ways, at least 60 % of nominal bandwidth.
    A,
}

impl LinkGrade {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
        }
    }
}

/// One physical card, as NVML and the driver agree on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    pub uuid: GpuUuid,
    /// Product name, for example `NVIDIA GeForce RTX 4090`.
    pub model: String,
    pub serial: Option<String>,
    /// Total memory as the driver reports it.
    pub memory_bytes: Bytes,
    /// BAR1 aperture; peers reach at most this much over PCIe.
    pub bar1_bytes: Bytes,
    pub pci_bus_id: String,
    /// Minor number of the device node, `/dev/nvidia<minor>`.
    pub minor: u32,
    pub numa_node: Option<u32>,
    /// Cards with the same value sit under one PCIe switch.
    pub pcie_switch: Option<String>,
    pub compute_capability: String,
    pub mig_enabled: bool,
    pub display_active: bool,
    pub health: GpuHealth,
}

/// The agent's verdict on a card, from admission checks and events since.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum GpuHealth {
    Ok,
    /// Works; new placements avoid it when they can.
    Degraded {
        reason: String,
    },
    /// No new placements; running instances finish.
    Drain {
        reason: String,
    },
    /// NVML calls for this card do not return in time.
    Unresponsive {
        reason: String,
    },
    /// Not to be used until tested again by an operator.
    OutOfService {
        reason: String,
    },
}

impl GpuHealth {
    pub const fn accepts_placement(&self) -> bool {
        matches!(self, Self::Ok | Self::Degraded { .. })
    }
}

/// What the tools say of an ordered pair: a hint, never a proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkHint {
    pub from: GpuUuid,
    pub to: GpuUuid,
    pub class: LinkClass,
    /// Active NVLink links of the pair.
    pub nvlinks: u32,
    pub same_switch: bool,
}

/// Result of one probe of an ordered pair, made in a throw-away process through the product path: a descriptor of the `to`
/// card's memory, imported and used by a process that sees only the `from` card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LinkProbe {
    pub from: GpuUuid,
    pub to: GpuUuid,
    pub class: LinkClass,
    pub grade: LinkGrade,
    pub outcome: ProbeOutcome,
    /// Decimal megabytes per second, measured; 0 when not measured.
    pub read_mb_per_second: u64,
    pub write_mb_per_second: u64,
    pub latency_nanos: u64,
    pub driver_version: String,
    /// `translating`, `off`, or `None` when it cannot be told.
    pub iommu: Option<String>,
    pub bytes_tested: Bytes,
    /// What the verdict rests on; `None` from agents that did not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<LinkEvidence>,
}

/// What a certificate rests on beside its figures, and what keeps its grade down.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkEvidence {
    /// When, on the host's monotonic clock; the date is the control plane's.
    pub mono_ms: Option<MonoMillis>,
    pub occasion: String,
    /// `open`, `stock` or `patched`, when it can be told.
    pub kernel_module: Option<String>,
    /// Of the card that owns the memory.
    pub bar1_bytes: Bytes,
    pub memory_bytes: Bytes,
    /// Access control on the way sends peer traffic through the CPU; `None` when it cannot be told.
    pub acs_redirect: Option<bool>,
    pub display_active: bool,
    pub mig_enabled: bool,
    /// Decimal megabytes per second and direction over all NVLinks of the pair; 0 when it cannot be told.
    pub nominal_mb_per_second: u64,
    pub rates: LinkRates,
    pub atomics: Vec<AtomicTrial>,
    /// Why the grade is no better: a code, what was found and what can be done, for people.
    pub limits: Vec<LinkLimit>,
}

/// Decimal megabytes per second; 0 when not measured.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkRates {
    /// By kernel, with copies in the other direction at the same time.
    pub loaded_read_mb_per_second: u64,
    pub loaded_write_mb_per_second: u64,
    /// By copy engine, out of the peer's memory and into it.
    pub copy_out_mb_per_second: u64,
    pub copy_in_mb_per_second: u64,
}

/// One kind of read-modify-write, by both cards at once on the same word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AtomicTrial {
    /// `add_u32`, `add_f32`, `cas_u32` or `red_u64`.
    pub kind: String,
    pub expected: u64,
    pub found: u64,
    /// Operations per second of the card at the far end; 0 when not measured.
    pub per_second: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkLimit {
    pub code: String,
    pub detail: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum ProbeOutcome {
    Passed {
        atomics_native: bool,
    },
    /// `reason` is a reason code such as `p2p_data_mismatch`, `p2p_enable_failed`, `probe_crashed`, `probe_timeout`, `no_p2p`.
    Failed {
        reason: String,
        detail: String,
    },
}

/// Everything an agent knows of its host's hardware, sent when it changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    pub driver_version: String,
    pub nvml_version: String,
    pub cuda_version: String,
    /// `stock`, `open` or `patched`, when it can be told.
    pub kernel_module: Option<String>,
    pub gpus: Vec<Gpu>,
    pub links: Vec<LinkHint>,
}
