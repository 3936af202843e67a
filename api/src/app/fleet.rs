//! The fleet of this moment, as placement wants it: read in one transaction, so that it is one instant.

use std::collections::HashMap;

use tarn_protocol::hardware::GpuHealth;
use tarn_protocol::ids::{GpuUuid, HostId, LeaseId};
use tarn_provisioner::snapshot::{GpuSnapshot, HostSnapshot, LinkSnapshot};
use tarn_rows::gpus::GpuRow;
use tarn_rows::hosts::HostRow;
use tarn_rows::links::FleetLinkRow;
use tarn_store::{StoreError, Tx};

pub async fn snapshot(tx: &mut Tx) -> Result<Vec<HostSnapshot>, StoreError> {
    let hosts = tx.fleet_hosts().await?;
    let held = tx.fleet_held_gpus().await?;
    let held: HashMap<GpuUuid, LeaseId> =
        held.into_iter().map(|card| (card.gpu_uuid, card.lease_id)).collect();
    let mut gpus: HashMap<HostId, Vec<GpuRow>> = HashMap::new();
    for gpu in tx.fleet_gpus().await? {
        gpus.entry(gpu.host_id.clone()).or_default().push(gpu);
    }
    let mut links: HashMap<HostId, Vec<FleetLinkRow>> = HashMap::new();
    for certificate in tx.fleet_links().await? {
        links.entry(certificate.host_id.clone()).or_default().push(certificate);
    }
    let join = |host: HostRow| {
        let gpus = gpus.remove(&host.id).unwrap_or_default();
        let links = links.remove(&host.id).unwrap_or_default();
        host_snapshot(host, gpus, links, &held)
    };
    Ok(hosts.into_iter().map(join).collect())
}

fn host_snapshot(
    host: HostRow,
    gpus: Vec<GpuRow>,
    links: Vec<FleetLinkRow>,
    held: &HashMap<GpuUuid, LeaseId>,
) -> HostSnapshot {
    let links = links.into_iter().map(|certificate| link_snapshot(&host, certificate)).collect();
    let gpus = gpus.into_iter().map(|gpu| {
        let lease = held.get(&gpu.uuid).cloned();
        gpu_snapshot(gpu, lease)
    });
    HostSnapshot {
        gpus: gpus.collect(),
        links,
        region: host.region,
        driver_version: host.driver_version.unwrap_or_default(),
        epoch: host.epoch,
        cordoned: host.cordoned || host.quarantine_reason.is_some(),
        unreachable: host.unreachable_since.is_some(),
        id: host.id,
    }
}

fn gpu_snapshot(gpu: GpuRow, lease: Option<LeaseId>) -> GpuSnapshot {
    // An operator's word outlives what the agent says.
    let health = if gpu.quarantined {
        GpuHealth::OutOfService { reason: "quarantined".to_owned() }
    } else {
        gpu.health.0
    };
    GpuSnapshot {
        uuid: gpu.uuid,
        slot: gpu.minor,
        model: gpu.model,
        memory_bytes: gpu.memory_bytes,
        health,
        pcie_switch: gpu.pcie_switch,
        numa_node: gpu.numa_node,
        mig_enabled: gpu.mig_enabled,
        display_active: gpu.display_active,
        lease,
    }
}

/// A certificate counts only under the driver and the boot that it was made under.
fn link_snapshot(host: &HostRow, certificate: FleetLinkRow) -> LinkSnapshot {
    let same_driver = host.driver_version.as_ref() == Some(&certificate.driver_version);
    let same_boot = host.boot_id.as_ref() == Some(&certificate.boot_id);
    LinkSnapshot {
        valid: certificate.passed && same_driver && same_boot,
        from: certificate.from_uuid,
        to: certificate.to_uuid,
        class: certificate.class,
        grade: certificate.grade,
        read_mb_per_second: certificate.read_mb_per_second,
        write_mb_per_second: certificate.write_mb_per_second,
        certificate_id: Some(certificate.id),
        certified_at: Some(certificate.created_at),
    }
}
