//! What a report says of cards and links: inventory, telemetry, events, and certificates from probes.

use std::collections::BTreeSet;

use serde_json::json;
use tarn_protocol::control::{Escape, Report};
use tarn_protocol::hardware::{Gpu, Inventory, LinkProbe, ProbeOutcome};
use tarn_protocol::ids::{CertificateId, EventId, GpuUuid, HostId};
use tarn_rows::Json;
use tarn_rows::alerts::AlertRow;
use tarn_rows::gpus::{GpuEventRow, GpuRow};
use tarn_rows::hosts::HostRow;
use tarn_rows::links::{CertificateRow, ProbeOrderRow};
use tarn_store::{StoreError, Tx};

use crate::app::act::Act;

/// Stores everything a fresh report says of hardware.
pub async fn store(
    tx: &mut Tx,
    act: &mut Act,
    host: &mut HostRow,
    report: &Report,
) -> Result<(), StoreError> {
    if let Some(inventory) = &report.inventory {
        store_inventory(tx, act, host, inventory).await?;
    }
    for sample in &report.telemetry {
        tx.set_gpu_telemetry(&host.id, sample, act.now).await?;
    }
    store_probes(tx, act, host, report).await?;
    for event in &report.gpu_events {
        let row = GpuEventRow {
            id: EventId::new(act.now, act.bits()),
            host_id: host.id.clone(),
            gpu_uuid: event.uuid.clone(),
            boot_id: report.boot_id.clone(),
            mono_ms: event.mono_ms,
            xid: event.xid,
            detail: event.detail.clone(),
            created_at: act.now,
        };
        tx.insert_gpu_event(&row).await?;
        if let Some(escape) = &event.escape {
            tx.open_alert(&escape_alert(act, host, &event.uuid, escape)).await?;
        }
    }
    Ok(())
}

/// Somebody computed on a card that is not theirs: the evidence, kept for a person, under the instance that is to answer for it.
fn escape_alert(act: &Act, host: &HostRow, card: &GpuUuid, escape: &Escape) -> AlertRow {
    AlertRow {
        id: EventId::new(act.now, act.bits()),
        kind: "donor_escape".to_owned(),
        subject: escape.instance_id.as_ref().map_or_else(|| card.to_string(), ToString::to_string),
        detail: Json(json!({"host_id": host.id, "gpu_uuid": card, "escape": escape})),
        created_at: act.now,
        cleared_at: None,
    }
}

/// Cards that the inventory does not name are gone. A card that another host has is refused and an operator is called.
async fn store_inventory(
    tx: &mut Tx,
    act: &mut Act,
    host: &mut HostRow,
    inventory: &Inventory,
) -> Result<(), StoreError> {
    host.driver_version = Some(inventory.driver_version.clone());
    host.inventory = Some(Json(inventory.clone()));
    tx.set_host_inventory(host).await?;
    tx.set_gpus_absent(&host.id, act.now).await?;
    for gpu in &inventory.gpus {
        if !tx.upsert_gpu(&gpu_row(host, gpu, act)).await? {
            let alert = AlertRow {
                id: EventId::new(act.now, act.bits()),
                kind: "gpu_on_two_hosts".to_owned(),
                subject: gpu.uuid.to_string(),
                detail: Json(json!({"host_id": host.id})),
                created_at: act.now,
                cleared_at: None,
            };
            tx.open_alert(&alert).await?;
        }
    }
    act.woke(crate::app::act::RECONCILE);
    Ok(())
}

fn gpu_row(host: &HostRow, gpu: &Gpu, act: &Act) -> GpuRow {
    GpuRow {
        uuid: gpu.uuid.clone(),
        host_id: host.id.clone(),
        model: gpu.model.clone(),
        memory_bytes: gpu.memory_bytes,
        bar1_bytes: gpu.bar1_bytes,
        pci_bus_id: gpu.pci_bus_id.clone(),
        minor: gpu.minor,
        numa_node: gpu.numa_node,
        pcie_switch: gpu.pcie_switch.clone(),
        compute_capability: gpu.compute_capability.clone(),
        mig_enabled: gpu.mig_enabled,
        display_active: gpu.display_active,
        health: Json(gpu.health.clone()),
        quarantined: false,
        telemetry: None,
        present: true,
        updated_at: act.now,
    }
}

/// Each probe becomes the current certificate of its ordered pair. Pairs of cards that this host does not have are ignored.
async fn store_probes(tx: &mut Tx, act: &Act, host: &HostRow, report: &Report) -> Result<(), StoreError> {
    if report.probes.is_empty() {
        return Ok(());
    }
    let own: BTreeSet<GpuUuid> = tx.gpus_of_host(&host.id).await?.into_iter().map(|gpu| gpu.uuid).collect();
    for probe in report.probes.iter().filter(|probe| own.contains(&probe.from) && own.contains(&probe.to)) {
        tx.insert_certificate(&certificate(act, host, report, probe)).await?;
    }
    Ok(())
}

fn certificate(act: &Act, host: &HostRow, report: &Report, probe: &LinkProbe) -> CertificateRow {
    let (passed, reason) = match &probe.outcome {
        ProbeOutcome::Passed { .. } => (true, None),
        ProbeOutcome::Failed { reason, .. } => (false, Some(reason.clone())),
    };
    CertificateRow {
        id: CertificateId::new(act.now, act.bits()),
        host_id: host.id.clone(),
        from_uuid: probe.from.clone(),
        to_uuid: probe.to.clone(),
        class: probe.class,
        grade: probe.grade,
        passed,
        reason,
        read_mb_per_second: probe.read_mb_per_second,
        write_mb_per_second: probe.write_mb_per_second,
        latency_nanos: probe.latency_nanos,
        driver_version: probe.driver_version.clone(),
        boot_id: report.boot_id.clone(),
        probe: Json(probe.clone()),
        created_at: act.now,
        superseded_at: None,
    }
}

/// After a reboot no certificate counts: every pair that had one is to be probed again.
pub async fn order_probes_again(tx: &mut Tx, act: &mut Act, host: &HostId) -> Result<(), StoreError> {
    let pairs = tx.certificates_of_host(host).await?;
    for pair in &pairs {
        let order = ProbeOrderRow {
            from_uuid: pair.from_uuid.clone(),
            to_uuid: pair.to_uuid.clone(),
            host_id: host.clone(),
            created_at: act.now,
        };
        tx.insert_probe_order(&order).await?;
    }
    if !pairs.is_empty() {
        tx.bump_desired_revision(host).await?;
        act.changed_desired(host);
    }
    Ok(())
}

/// Orders probes of every ordered pair that a card is part of on its host.
pub async fn order_probes_of(tx: &mut Tx, act: &mut Act, gpu: &GpuRow) -> Result<(), StoreError> {
    let present = tx.gpus_of_host(&gpu.host_id).await?.into_iter().filter(|card| card.present);
    for other in present.filter(|card| card.uuid != gpu.uuid) {
        for (from, to) in [(&gpu.uuid, &other.uuid), (&other.uuid, &gpu.uuid)] {
            let order = ProbeOrderRow {
                from_uuid: from.clone(),
                to_uuid: to.clone(),
                host_id: gpu.host_id.clone(),
                created_at: act.now,
            };
            tx.insert_probe_order(&order).await?;
        }
    }
    tx.bump_desired_revision(&gpu.host_id).await?;
    act.changed_desired(&gpu.host_id);
    Ok(())
}
