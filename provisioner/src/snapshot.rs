//! What the store knows of the fleet, as plain values in any order.
//!
//! A link belongs to an ordered pair: `from` is the card whose kernels read and write, `to` the card whose memory they reach. What
//! counts is the certificate, never the product name: a link without a valid one is no link, whatever class it claims.

use tarn_protocol::hardware::{GpuHealth, LinkClass, LinkGrade};
use tarn_protocol::ids::{CertificateId, GpuUuid, HostId, LeaseId};
use tarn_protocol::units::{Bytes, Generation, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSnapshot {
    pub id: HostId,
    pub region: String,
    pub driver_version: String,
    pub epoch: Generation,
    pub cordoned: bool,
    pub unreachable: bool,
    pub gpus: Vec<GpuSnapshot>,
    /// Links between cards of this host; others are ignored.
    pub links: Vec<LinkSnapshot>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuSnapshot {
    pub uuid: GpuUuid,
    /// Place in the host (the device node's minor number). Orders cards, and identifies nothing.
    pub slot: u32,
    pub model: String,
    pub memory_bytes: Bytes,
    pub health: GpuHealth,
    pub pcie_switch: Option<String>,
    pub numa_node: Option<u32>,
    pub mig_enabled: bool,
    pub display_active: bool,
    /// The live lease that holds the card.
    pub lease: Option<LeaseId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSnapshot {
    pub from: GpuUuid,
    pub to: GpuUuid,
    pub class: LinkClass,
    pub grade: LinkGrade,
    /// Measured, decimal megabytes per second.
    pub read_mb_per_second: u64,
    pub write_mb_per_second: u64,
    pub certificate_id: Option<CertificateId>,
    pub certified_at: Option<Timestamp>,
    /// False once the certificate was revoked, expired, or made under another driver or boot.
    pub valid: bool,
}

impl LinkSnapshot {
    /// Whether data proved this link: only then does its class mean anything.
    pub fn certified(&self) -> bool {
        self.valid && self.certificate_id.is_some() && self.certified_at.is_some()
    }
}
