//! The pool config: one JSON document per pool, written by the agent before the broker and the instance start.
//!
//! The broker reads it to know its donors, the stand-ins find it beside their own file (so that no entry path into an instance
//! depends on inherited environment), and the runtime builds device lists and mounts from it. It never changes while the
//! pool lives, except by a higher generation: totals are frozen for the life of a process.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::hardware::{LinkClass, LinkGrade};
use crate::ids::{CertificateId, GpuUuid, InstanceId, LeaseId};
use crate::units::{Bytes, Generation};

/// File name, beside the stand-in libraries.
pub const FILE_NAME: &str = "pool.json";
/// Version of the document's shape that this build writes and reads.
pub const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolConfig {
    pub version: u32,
    pub instance_id: InstanceId,
    pub lease_id: LeaseId,
    pub generation: Generation,
    pub primary: Primary,
    pub donors: Vec<Donor>,
    pub policy: Policy,
    /// Path of the broker's socket as a process inside the instance sees it.
    pub broker_socket: PathBuf,
    /// Path of the append-only file for one-line stand-in warnings, as the instance sees it.
    pub standin_log: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Primary {
    pub uuid: GpuUuid,
    pub pci_bus_id: String,
    pub minor: u32,
    /// What the driver reports as the card's total.
    pub memory_bytes: Bytes,
    /// Bytes of the primary that the tenant may use, all its processes together; `None` means the whole card.
    pub cap_bytes: Option<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Donor {
    pub uuid: GpuUuid,
    pub pci_bus_id: String,
    pub minor: u32,
    /// Certified bytes that this donor gives to the pool: a multiple of the granule, net of what the driver keeps.
    pub reserved_bytes: Bytes,
    pub link_class: LinkClass,
    pub grade: LinkGrade,
    pub read_mb_per_second: u64,
    pub certificate_id: Option<CertificateId>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub placement: Placement,
    /// Kept free on the primary for late, small and hot allocations.
    pub reserve_bytes: Bytes,
    /// Requests of at least this size are cold by default and go to donors once the primary is down to its reserve.
    pub large_bytes: Bytes,
    /// Unit of donor chunks and of stitched ranges; a multiple of 2 MiB.
    pub granule_bytes: Bytes,
}

/// Where spilled bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Fill the primary (down to the reserve for large requests), then donors in order of read bandwidth.
    LocalFirst,
    /// Large requests alternate granules over the primary and all donors.
    Interleave,
    /// Large requests split in proportion to the free bytes of every card.
    Balanced,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            placement: Placement::LocalFirst,
            reserve_bytes: Bytes::mib(512),
            large_bytes: Bytes::mib(64),
            granule_bytes: Bytes::mib(2),
        }
    }
}

/// Why a pool config was refused.
#[derive(Debug, thiserror::Error)]
pub enum PoolConfigError {
    #[error("cannot read pool config {path}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("pool config {path} is not valid JSON of this shape")]
    Parse { path: PathBuf, source: serde_json::Error },
    #[error("pool config version {found}, this build reads {VERSION}")]
    Version { found: u32 },
    #[error("pool config names card {uuid} twice")]
    DuplicateCard { uuid: GpuUuid },
    #[error("granule of {granule_bytes} bytes is not a positive multiple of 2 MiB")]
    Granule { granule_bytes: Bytes },
    #[error("donor {uuid} gives {reserved_bytes} bytes, not a multiple of the granule")]
    Reserved { uuid: GpuUuid, reserved_bytes: Bytes },
}

impl PoolConfig {
    /// Reads and validates the document at `path`.
    pub fn read(path: &Path) -> Result<Self, PoolConfigError> {
        let text =
            std::fs::read(path).map_err(|source| PoolConfigError::Read { path: path.to_owned(), source })?;
        let config: Self = serde_json::from_slice(&text)
            .map_err(|source| PoolConfigError::Parse { path: path.to_owned(), source })?;
        config.validate()?;
        Ok(config)
    }

    pub fn validate(&self) -> Result<(), PoolConfigError> {
        if self.version != VERSION {
            return Err(PoolConfigError::Version { found: self.version });
        }
        let granule = self.policy.granule_bytes;
        if granule.get() == 0 || !granule.get().is_multiple_of(2 * Bytes::MIB) {
            return Err(PoolConfigError::Granule { granule_bytes: granule });
        }
        let mut seen = vec![&self.primary.uuid];
        for donor in &self.donors {
            if seen.contains(&&donor.uuid) {
                return Err(PoolConfigError::DuplicateCard { uuid: donor.uuid.clone() });
            }
            seen.push(&donor.uuid);
            if !donor.reserved_bytes.get().is_multiple_of(granule.get()) {
                return Err(PoolConfigError::Reserved {
                    uuid: donor.uuid.clone(),
                    reserved_bytes: donor.reserved_bytes,
                });
            }
        }
        Ok(())
    }

    /// What the primary contributes to the pool's total.
    pub fn primary_bytes(&self) -> Bytes {
        let whole = self.primary.memory_bytes;
        self.primary.cap_bytes.map_or(whole, |cap| cap.min(whole))
    }

    pub fn donor_bytes(&self) -> Bytes {
        Bytes::new(self.donors.iter().map(|donor| donor.reserved_bytes.get()).sum())
    }

    /// The one total that every window (CUDA, NVML, the API) shows.
    pub fn total_bytes(&self) -> Bytes {
        Bytes::new(self.primary_bytes().get() + self.donor_bytes().get())
    }
}
