//! Cards, and what happened to them.

use tarn_protocol::control::GpuTelemetry;
use tarn_protocol::hardware::GpuHealth;
use tarn_protocol::ids::{EventId, GpuUuid, HostId};
use tarn_protocol::units::{BootId, Bytes, MonoMillis, Timestamp};

use crate::stored::{Json, rows};

rows! {
    GpuRow / GpuRaw {
        uuid: GpuUuid,
        host_id: HostId,
        model: String,
        memory_bytes: Bytes,
        bar1_bytes: Bytes,
        pci_bus_id: String,
        minor: u32,
        numa_node: Option<u32>,
        pcie_switch: Option<String>,
        compute_capability: String,
        mig_enabled: bool,
        display_active: bool,
        health: Json<GpuHealth>,
        /// By an operator; persists over agent restarts. An upsert never changes it.
        quarantined: bool,
        telemetry: Option<Json<GpuTelemetry>>,
        /// In the newest inventory of its host.
        present: bool,
        updated_at: Timestamp,
    }
    GpuEventRow / GpuEventRaw {
        id: EventId,
        host_id: HostId,
        gpu_uuid: GpuUuid,
        boot_id: BootId,
        mono_ms: MonoMillis,
        xid: u32,
        detail: String,
        created_at: Timestamp,
    }
}
