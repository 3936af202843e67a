//! Everything that placement needs, whole. Read together, in one transaction, they are one instant of the fleet.

use sqlx::query_as;
use tarn_rows::gpus::{GpuRaw, GpuRow};
use tarn_rows::hosts::{HostRaw, HostRow};
use tarn_rows::leases::{HeldGpuRaw, HeldGpuRow};
use tarn_rows::links::{FleetLinkRaw, FleetLinkRow};

use super::{Conn, Result, take_all};

/// Every host, without its inventory document: `inventory` is `None`.
pub async fn fleet_hosts(conn: &mut Conn) -> Result<Vec<HostRow>> {
    let raws = query_as!(
        HostRaw,
        r#"SELECT id, name, region, credential_sha256, epoch, boot_id, report_seq, reported_at, reported_mono_ms,
                 agent_version, driver_version, CAST(NULL AS TEXT) AS "inventory?: String", cordoned,
                 unreachable_since, quarantine_reason, r.desired AS "desired_revision!: i64", created_at
             FROM hosts JOIN host_revisions r ON r.host_id = hosts.id ORDER BY id"#
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Every card that is in its host's newest inventory, without telemetry.
pub async fn fleet_gpus(conn: &mut Conn) -> Result<Vec<GpuRow>> {
    let raws = query_as!(
        GpuRaw,
        r#"SELECT uuid, host_id, model, memory_bytes, bar1_bytes, pci_bus_id, minor, numa_node, pcie_switch,
                 compute_capability, mig_enabled, display_active, health, quarantined,
                 CAST(NULL AS TEXT) AS "telemetry?: String", present, updated_at
             FROM gpus WHERE present ORDER BY host_id, minor, uuid"#
    );
    take_all(raws.fetch_all(conn).await?)
}

/// The current verdict on every ordered pair, without the probe's document.
pub async fn fleet_links(conn: &mut Conn) -> Result<Vec<FleetLinkRow>> {
    let raws = query_as!(
        FleetLinkRaw,
        "SELECT id, host_id, from_uuid, to_uuid, class, grade, passed, read_mb_per_second, write_mb_per_second,
                 driver_version, boot_id, created_at
             FROM link_certificates WHERE superseded_at IS NULL ORDER BY host_id, from_uuid, to_uuid"
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Every card in a live lease.
pub async fn fleet_held_gpus(conn: &mut Conn) -> Result<Vec<HeldGpuRow>> {
    let raws = query_as!(
        HeldGpuRaw,
        "SELECT g.gpu_uuid, g.lease_id, l.host_id, l.instance_id, l.tenant_id, g.place
         FROM lease_gpus g JOIN leases l ON l.id = g.lease_id
         WHERE g.released_at IS NULL ORDER BY l.host_id, g.lease_id, g.place"
    );
    take_all(raws.fetch_all(conn).await?)
}
