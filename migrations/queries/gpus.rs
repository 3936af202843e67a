//! Cards and their events. For agents' calls, workers and operators.

use sqlx::{query, query_as};
use tarn_protocol::ids::{EventId, GpuUuid, HostId};
use tarn_protocol::units::Timestamp;
use tarn_rows::Page;
use tarn_rows::gpus::{GpuEventRaw, GpuEventRow, GpuRaw, GpuRow};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_gpu {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            GpuRaw,
            "SELECT uuid, host_id, model, memory_bytes, bar1_bytes, pci_bus_id, minor, numa_node, pcie_switch,
                 compute_capability, mig_enabled, display_active, health, quarantined, telemetry, present, updated_at
             FROM gpus " + $tail
            $(, $arg)*
        )
    };
}

/// Inserts a card or takes over what its host now says of it, but never an operator's quarantine, and telemetry only when given.
/// `false`: the card belongs to another host; a moved card is for an operator to confirm.
pub async fn upsert_gpu(conn: &mut Conn, gpu: &GpuRow) -> Result<bool> {
    let row = put(gpu)?;
    let done = query!(
        "INSERT INTO gpus (uuid, host_id, model, memory_bytes, bar1_bytes, pci_bus_id, minor, numa_node,
             pcie_switch, compute_capability, mig_enabled, display_active, health, quarantined, telemetry, present,
             updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
         ON CONFLICT (uuid) DO UPDATE SET
             model = excluded.model, memory_bytes = excluded.memory_bytes, bar1_bytes = excluded.bar1_bytes,
             pci_bus_id = excluded.pci_bus_id, minor = excluded.minor, numa_node = excluded.numa_node,
             pcie_switch = excluded.pcie_switch, compute_capability = excluded.compute_capability,
             mig_enabled = excluded.mig_enabled, display_active = excluded.display_active,
             health = excluded.health, telemetry = COALESCE(excluded.telemetry, gpus.telemetry),
             present = excluded.present, updated_at = excluded.updated_at
         WHERE gpus.host_id = excluded.host_id",
        row.uuid,
        row.host_id,
        row.model,
        row.memory_bytes,
        row.bar1_bytes,
        row.pci_bus_id,
        row.minor,
        row.numa_node,
        row.pcie_switch,
        row.compute_capability,
        row.mig_enabled,
        row.display_active,
        row.health,
        row.quarantined,
        row.telemetry,
        row.present,
        row.updated_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Marks every card of a host absent; the upserts of its new inventory bring back those that are there.
pub async fn set_gpus_absent(conn: &mut Conn, host: &HostId, now: Timestamp) -> Result<u64> {
    let done = query!(
        "UPDATE gpus SET present = FALSE, updated_at = $2 WHERE host_id = $1 AND present",
        host.as_str(),
        now.as_micros()
    );
    Ok(done.execute(conn).await?.rows_affected())
}

/// Stores the newest health and telemetry of a card that its host reports (`row.health`, `row.telemetry`).
pub async fn set_gpu_health(conn: &mut Conn, gpu: &GpuRow) -> Result<bool> {
    let row = put(gpu)?;
    let done = query!(
        "UPDATE gpus SET health = $3, telemetry = COALESCE($4, telemetry), updated_at = $5
         WHERE uuid = $1 AND host_id = $2",
        row.uuid,
        row.host_id,
        row.health,
        row.telemetry,
        row.updated_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// `telemetry` as JSON of one sample.
pub async fn set_gpu_telemetry(
    conn: &mut Conn,
    host: &HostId,
    telemetry: &tarn_protocol::control::GpuTelemetry,
    now: Timestamp,
) -> Result<bool> {
    let document = put(&tarn_rows::Json(telemetry.clone()))?;
    let done = query!(
        "UPDATE gpus SET telemetry = $3, updated_at = $4 WHERE uuid = $1 AND host_id = $2",
        telemetry.uuid.as_str(),
        host.as_str(),
        document,
        now.as_micros()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

pub async fn gpu(conn: &mut Conn, uuid: &GpuUuid) -> Result<Option<GpuRow>> {
    select_gpu!("WHERE uuid = $1", uuid.as_str()).fetch_optional(conn).await?.map(take).transpose()
}

pub async fn gpus(conn: &mut Conn, page: Page<'_, GpuUuid>) -> Result<Vec<GpuRow>> {
    let raws = select_gpu!("WHERE uuid > $1 ORDER BY uuid LIMIT $2", page.above(), page.limit());
    take_all(raws.fetch_all(conn).await?)
}

pub async fn gpus_of_host(conn: &mut Conn, host: &HostId) -> Result<Vec<GpuRow>> {
    let raws = select_gpu!("WHERE host_id = $1 ORDER BY minor, uuid", host.as_str());
    take_all(raws.fetch_all(conn).await?)
}

/// By an operator, with a fresh verdict when it is lifted.
pub async fn set_gpu_quarantined(
    conn: &mut Conn,
    uuid: &GpuUuid,
    quarantined: bool,
    now: Timestamp,
) -> Result<bool> {
    let done = query!(
        "UPDATE gpus SET quarantined = $2, updated_at = $3 WHERE uuid = $1",
        uuid.as_str(),
        quarantined,
        now.as_micros()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// `false`: this event is known already.
pub async fn insert_gpu_event(conn: &mut Conn, event: &GpuEventRow) -> Result<bool> {
    let row = put(event)?;
    let done = query!(
        "INSERT INTO gpu_events (id, host_id, gpu_uuid, boot_id, mono_ms, xid, detail, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (boot_id, gpu_uuid, mono_ms, xid) DO NOTHING",
        row.id,
        row.host_id,
        row.gpu_uuid,
        row.boot_id,
        row.mono_ms,
        row.xid,
        row.detail,
        row.created_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Newest first; `page.after` is the last id seen.
pub async fn gpu_events(conn: &mut Conn, page: Page<'_, EventId>) -> Result<Vec<GpuEventRow>> {
    let raws = query_as!(
        GpuEventRaw,
        "SELECT id, host_id, gpu_uuid, boot_id, mono_ms, xid, detail, created_at
         FROM gpu_events WHERE id < $1 ORDER BY id DESC LIMIT $2",
        page.below(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}
