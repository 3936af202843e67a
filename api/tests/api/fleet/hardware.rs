//! Scripted hardware for logic tests: inventories and probe results without a driver.

use tarn_protocol::hardware::{
    Gpu, GpuHealth, Inventory, LinkClass, LinkGrade, LinkHint, LinkProbe, ProbeOutcome,
};
use tarn_protocol::ids::GpuUuid;
use tarn_protocol::units::Bytes;

/// 24 GB as the driver of a 4090 reports it.
pub const CARD_BYTES: u64 = 24_564 * Bytes::MIB;

/// How the cards of a scripted host reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wiring {
    /// Pairs bridged by NVLink, PCIe peer access between the pairs of one switch of four cards.
    BridgedPairs,
    /// The stock driver: no peer access at all.
    Stock,
}

/// The `index`th card of the host numbered `host`.
pub fn uuid(host: u32, index: u32) -> GpuUuid {
    format!("GPU-{host:08x}-0000-4000-8000-{index:012x}").parse().expect("well-formed")
}

pub fn inventory(host: u32, cards: u32) -> Inventory {
    Inventory {
        driver_version: "580.95.05".into(),
        nvml_version: "13.580.95.05".into(),
        cuda_version: "13.0".into(),
        kernel_module: Some("patched".into()),
        gpus: (0..cards).map(|index| card(host, index)).collect(),
        links: ordered_pairs(cards)
            .map(|(from, to)| LinkHint {
                from: uuid(host, from),
                to: uuid(host, to),
                class: class(Wiring::BridgedPairs, from, to),
                nvlinks: if from / 2 == to / 2 { 4 } else { 0 },
                same_switch: from / 4 == to / 4,
            })
            .collect(),
    }
}

fn card(host: u32, index: u32) -> Gpu {
    Gpu {
        uuid: uuid(host, index),
        model: "NVIDIA GeForce RTX 4090".into(),
        serial: None,
        memory_bytes: Bytes::new(CARD_BYTES),
        bar1_bytes: Bytes::gib(32),
        pci_bus_id: format!("00000000:{index:02X}:00.0"),
        minor: index,
        numa_node: Some(index / 4),
        pcie_switch: Some(format!("switch{}", index / 4)),
        compute_capability: "8.9".into(),
        mig_enabled: false,
        display_active: false,
        health: GpuHealth::Ok,
    }
}

fn ordered_pairs(cards: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..cards).flat_map(move |from| (0..cards).filter(move |to| *to != from).map(move |to| (from, to)))
}

fn class(wiring: Wiring, from: u32, to: u32) -> LinkClass {
    match wiring {
        Wiring::BridgedPairs if from / 2 == to / 2 => LinkClass::Nvlink,
        Wiring::BridgedPairs if from / 4 == to / 4 => LinkClass::PcieP2p,
        Wiring::BridgedPairs | Wiring::Stock => LinkClass::None,
    }
}

/// What the probes of every ordered pair find.
pub fn probes(host: u32, cards: u32, wiring: Wiring) -> Vec<LinkProbe> {
    ordered_pairs(cards).map(|(from, to)| probe(host, from, to, class(wiring, from, to))).collect()
}

/// What a probe of one ordered pair finds.
pub fn probe_of(wiring: Wiring, host: u32, from: u32, to: u32) -> LinkProbe {
    probe(host, from, to, class(wiring, from, to))
}

pub fn probe(host: u32, from: u32, to: u32, class: LinkClass) -> LinkProbe {
    let (grade, outcome, read) = match class {
        LinkClass::Nvlink => (LinkGrade::A, ProbeOutcome::Passed { atomics_native: true }, 101_300),
        LinkClass::PcieP2p => (LinkGrade::B, ProbeOutcome::Passed { atomics_native: false }, 24_400),
        LinkClass::None => (
            LinkGrade::D,
            ProbeOutcome::Failed { reason: "no_p2p".into(), detail: "peer access is not supported".into() },
            0,
        ),
    };
    LinkProbe {
        from: uuid(host, from),
        to: uuid(host, to),
        class,
        grade,
        outcome,
        read_mb_per_second: read,
        write_mb_per_second: read,
        latency_nanos: 1_200,
        driver_version: "580.95.05".into(),
        iommu: None,
        bytes_tested: Bytes::mib(64),
        evidence: None,
    }
}
