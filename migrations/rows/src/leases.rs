//! An instance's claim on cards.

use tarn_protocol::hardware::{LinkClass, LinkGrade};
use tarn_protocol::ids::{CertificateId, GpuUuid, HostId, InstanceId, LeaseId, TenantId};
use tarn_protocol::units::{Generation, Timestamp};

use crate::stored::rows;

rows! {
    LeaseRow / LeaseRaw {
        id: LeaseId,
        instance_id: InstanceId,
        tenant_id: TenantId,
        host_id: HostId,
        generation: Generation,
        created_at: Timestamp,
        released_at: Option<Timestamp>,
    }
    LeaseGpuRow / LeaseGpuRaw {
        lease_id: LeaseId,
        gpu_uuid: GpuUuid,
        /// 0 is the primary; donors from 1.
        place: u32,
        link_class: LinkClass,
        grade: LinkGrade,
        read_mb_per_second: u64,
        certificate_id: Option<CertificateId>,
        released_at: Option<Timestamp>,
    }
    /// A card in a live lease, with whose it is.
    HeldGpuRow / HeldGpuRaw {
        gpu_uuid: GpuUuid,
        lease_id: LeaseId,
        host_id: HostId,
        instance_id: InstanceId,
        tenant_id: TenantId,
        place: u32,
    }
}
