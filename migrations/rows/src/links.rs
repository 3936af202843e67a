//! Certificates of ordered pairs, and orders to probe again.

use tarn_protocol::hardware::{LinkClass, LinkGrade, LinkProbe};
use tarn_protocol::ids::{CertificateId, GpuUuid, HostId};
use tarn_protocol::units::{BootId, Timestamp};

use crate::stored::{Json, rows};

rows! {
    CertificateRow / CertificateRaw {
        id: CertificateId,
        host_id: HostId,
        from_uuid: GpuUuid,
        to_uuid: GpuUuid,
        class: LinkClass,
        grade: LinkGrade,
        passed: bool,
        /// Why it failed or was revoked.
        reason: Option<String>,
        read_mb_per_second: u64,
        write_mb_per_second: u64,
        latency_nanos: u64,
        driver_version: String,
        boot_id: BootId,
        probe: Json<LinkProbe>,
        created_at: Timestamp,
        /// `None`: the current verdict on this ordered pair.
        superseded_at: Option<Timestamp>,
    }
    /// A current certificate as placement needs it.
    FleetLinkRow / FleetLinkRaw {
        id: CertificateId,
        host_id: HostId,
        from_uuid: GpuUuid,
        to_uuid: GpuUuid,
        class: LinkClass,
        grade: LinkGrade,
        passed: bool,
        read_mb_per_second: u64,
        write_mb_per_second: u64,
        /// Valid under this driver and boot only.
        driver_version: String,
        boot_id: BootId,
        created_at: Timestamp,
    }
    ProbeOrderRow / ProbeOrderRaw {
        from_uuid: GpuUuid,
        to_uuid: GpuUuid,
        host_id: HostId,
        created_at: Timestamp,
    }
}
