//! Hosts made by hand. Host `h`'s card in slot `s` has a UUID made of both.

use tarn_protocol::hardware::{GpuHealth, LinkClass, LinkGrade};
use tarn_protocol::ids::{CertificateId, GpuUuid, HostId, LeaseId};
use tarn_protocol::units::{Bytes, Generation, Timestamp};

use crate::placement::{Placed, Reason, Refusal};
use crate::snapshot::{GpuSnapshot, HostSnapshot, LinkSnapshot};

const BRIDGE_MB_PER_SECOND: u64 = 56_000;
const SWITCH_MB_PER_SECOND: u64 = 346_000;
const PCIE_MB_PER_SECOND: u64 = 24_400;

pub fn card(host: u8, slot: u8) -> GpuUuid {
    let mut bytes = [0; 16];
    (bytes[0], bytes[1]) = (host, slot);
    GpuUuid::from_bytes(bytes)
}

pub fn lease(number: u128) -> LeaseId {
    LeaseId::new(Timestamp::from_micros(0), number)
}

/// The slots of a placed set, primary first.
pub fn slots(placed: &Placed) -> Vec<u8> {
    placed.cards().map(|uuid| uuid.to_bytes()[1]).collect()
}

pub fn failed_reasons(refusal: &Refusal) -> Vec<(Reason, usize)> {
    refusal.hosts.iter().map(|(reason, hosts)| (*reason, *hosts)).collect()
}

/// Cards without any link; four cards share a switch.
pub fn host(number: u8, cards: u8) -> HostSnapshot {
    let gpu = |slot| GpuSnapshot {
        uuid: card(number, slot),
        slot: u32::from(slot),
        model: "NVIDIA GeForce RTX 3090".into(),
        memory_bytes: Bytes::gib(24),
        health: GpuHealth::Ok,
        pcie_switch: Some(format!("switch-{}", slot / 4)),
        numa_node: Some(u32::from(slot / 4)),
        mig_enabled: false,
        display_active: false,
        lease: None,
    };
    HostSnapshot {
        id: HostId::new(Timestamp::from_micros(0), u128::from(number)),
        region: "hangzhou".into(),
        driver_version: "580.159.04".into(),
        epoch: Generation::new(1),
        cordoned: false,
        unreachable: false,
        gpus: (0..cards).map(gpu).collect(),
        links: Vec::new(),
    }
}

pub fn stock_without_links(number: u8, cards: u8) -> HostSnapshot {
    let mut host = host(number, cards);
    host.gpus.iter_mut().for_each(|gpu| gpu.model = "NVIDIA GeForce RTX 4090".into());
    host
}

/// The truth of a stock 4090 host: every probe failed, whatever the tools hinted.
pub fn stock(number: u8, cards: u8) -> HostSnapshot {
    let mut host = stock_without_links(number, cards);
    for from in 0..cards {
        for to in (0..cards).filter(|to| *to != from) {
            let mut link = link(number, from, to, LinkClass::None, 0);
            (link.grade, link.valid) = (LinkGrade::D, false);
            host.links.push(link);
        }
    }
    host
}

/// Pairs over a bridge, and certified PCIe peer access to the other pair under the same switch.
pub fn bridged_pairs(number: u8, cards: u8) -> HostSnapshot {
    let mut host = host(number, cards);
    for a in 0..cards {
        for b in a + 1..cards {
            if a / 2 == b / 2 {
                certify(&mut host, a, b, LinkClass::Nvlink);
            } else if a / 4 == b / 4 {
                certify(&mut host, a, b, LinkClass::PcieP2p);
            }
        }
    }
    host
}

/// Every card reaches every other over NVSwitch.
pub fn nvswitch(number: u8, cards: u8) -> HostSnapshot {
    let mut host = host(number, cards);
    for a in 0..cards {
        for b in a + 1..cards {
            certify_at(&mut host, a, b, LinkClass::Nvlink, SWITCH_MB_PER_SECOND);
        }
    }
    host
}

pub fn certify(host: &mut HostSnapshot, a: u8, b: u8, class: LinkClass) {
    let speed = if class == LinkClass::Nvlink { BRIDGE_MB_PER_SECOND } else { PCIE_MB_PER_SECOND };
    certify_at(host, a, b, class, speed);
}

/// Certifies both directions.
pub fn certify_at(host: &mut HostSnapshot, a: u8, b: u8, class: LinkClass, mb_per_second: u64) {
    let number = host.gpus[0].uuid.to_bytes()[0];
    host.links.push(link(number, a, b, class, mb_per_second));
    host.links.push(link(number, b, a, class, mb_per_second));
}

fn link(host: u8, from: u8, to: u8, class: LinkClass, mb_per_second: u64) -> LinkSnapshot {
    let at = Timestamp::from_micros(1);
    let number = u128::from(host) << 16 | u128::from(from) << 8 | u128::from(to);
    LinkSnapshot {
        from: card(host, from),
        to: card(host, to),
        class,
        grade: if class == LinkClass::Nvlink { LinkGrade::A } else { LinkGrade::B },
        read_mb_per_second: mb_per_second,
        write_mb_per_second: mb_per_second,
        certificate_id: Some(CertificateId::new(at, number)),
        certified_at: Some(at),
        valid: true,
    }
}
