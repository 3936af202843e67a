//! Hosts whose every card reaches every other over certified links, so that any number of cards from one to eight makes a pool.

use tarn_protocol::hardware::{GpuHealth, LinkClass, LinkGrade};
use tarn_protocol::ids::{CertificateId, GpuUuid, HostId};
use tarn_protocol::units::{Bytes, Generation, Timestamp};
use tarn_provisioner::snapshot::{GpuSnapshot, HostSnapshot, LinkSnapshot};

fn card(host: u8, slot: u8) -> GpuUuid {
    let mut bytes = [0; 16];
    (bytes[0], bytes[1]) = (host, slot);
    GpuUuid::from_bytes(bytes)
}

pub fn host(number: u8, cards: u8) -> HostSnapshot {
    let gpu = |slot| GpuSnapshot {
        uuid: card(number, slot),
        slot: u32::from(slot),
        model: "NVIDIA GeForce RTX 3090".into(),
        memory_bytes: Bytes::gib(24),
        health: GpuHealth::Ok,
        pcie_switch: Some("switch".into()),
        numa_node: Some(0),
        mig_enabled: false,
        display_active: false,
        lease: None,
    };
    let at = Timestamp::from_micros(1);
    let pairs =
        (0..cards).flat_map(|from| (0..cards).filter(move |to| *to != from).map(move |to| (from, to)));
    let link = |(from, to)| LinkSnapshot {
        from: card(number, from),
        to: card(number, to),
        class: LinkClass::Nvlink,
        grade: LinkGrade::A,
        read_mb_per_second: 56_000,
        write_mb_per_second: 56_000,
        certificate_id: Some(CertificateId::new(
            at,
            u128::from(number) << 16 | u128::from(from) << 8 | u128::from(to),
        )),
        certified_at: Some(at),
        valid: true,
    };
    HostSnapshot {
        id: HostId::new(Timestamp::from_micros(0), u128::from(number)),
        region: "hangzhou".into(),
        driver_version: "580.159.04".into(),
        epoch: Generation::new(1),
        cordoned: false,
        unreachable: false,
        gpus: (0..cards).map(gpu).collect(),
        links: pairs.map(link).collect(),
    }
}
