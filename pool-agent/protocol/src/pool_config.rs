//! The pool config: one JSON document per pool, written by the agent before the broker and the instance start.
//!
//! The broker reads it to know its donors, the stand-ins find it beside their own file (so that no entry path into an instance
//! depends on inherited environment), and the runtime builds device lists and mounts from it. It never changes while the
//! pool lives, except by a higher generation: totals are frozen for the life of a process.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::broker_wire::DONORS_MAX;
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
    /// Hardware trial on one card: every donor is the primary itself, and the broker makes its chunks there, beside a primary that
    /// is capped so that both fit. Sums, address ranges, crashes and programs are then tried on a real driver; links are not. The
    /// agent never writes this: a pool that a customer pays for has a card behind each donor.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub donors_on_primary: bool,
    /// Bytes of the host's own memory that the pool may use once every card is full: an overflow, in whole granules. No window counts
    /// it as device memory, and nobody is sold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_tier_bytes: Option<Bytes>,
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
    /// Kept free on the primary for late, small and hot allocations; see [`PoolConfig::reserve_bytes`] for what holds where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve_bytes: Option<Bytes>,
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
            reserve_bytes: None,
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
    #[error("a trial on one card has donor {uuid}, which is not the primary")]
    StrangeDonor { uuid: GpuUuid },
    #[error(
        "a trial on one card needs a cap that leaves {donor_bytes} bytes of {memory_bytes} to its donors"
    )]
    TrialCap { donor_bytes: Bytes, memory_bytes: Bytes },
    #[error("granule of {granule_bytes} bytes is not a positive multiple of 2 MiB")]
    Granule { granule_bytes: Bytes },
    #[error("donor {uuid} gives {reserved_bytes} bytes, not a multiple of the granule")]
    Reserved { uuid: GpuUuid, reserved_bytes: Bytes },
    #[error("a host tier of {bytes} bytes is not a positive multiple of the granule")]
    HostTier { bytes: Bytes },
    #[error("{count} donors and a host tier are more than the {DONORS_MAX} places of a pool")]
    Places { count: usize },
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
        if let Some(donor) =
            self.donors.iter().find(|donor| !donor.reserved_bytes.get().is_multiple_of(granule.get()))
        {
            let (uuid, reserved_bytes) = (donor.uuid.clone(), donor.reserved_bytes);
            return Err(PoolConfigError::Reserved { uuid, reserved_bytes });
        }
        if let Some(bytes) = self.host_tier_bytes {
            if bytes.get() == 0 || !bytes.get().is_multiple_of(granule.get()) {
                return Err(PoolConfigError::HostTier { bytes });
            }
            if self.donors.len() >= DONORS_MAX {
                return Err(PoolConfigError::Places { count: self.donors.len() });
            }
        }
        if self.donors_on_primary { self.validate_trial() } else { self.validate_cards() }
    }

    /// The host tier's place among those that the broker lends from: the one after the last donor.
    pub fn host_place(&self) -> Option<usize> {
        self.host_tier_bytes.map(|_| self.donors.len())
    }

    /// A card gives once: as the primary or as one donor.
    fn validate_cards(&self) -> Result<(), PoolConfigError> {
        let mut seen = vec![&self.primary.uuid];
        for donor in &self.donors {
            if seen.contains(&&donor.uuid) {
                return Err(PoolConfigError::DuplicateCard { uuid: donor.uuid.clone() });
            }
            seen.push(&donor.uuid);
        }
        Ok(())
    }

    fn validate_trial(&self) -> Result<(), PoolConfigError> {
        if let Some(strange) = self.donors.iter().find(|donor| donor.uuid != self.primary.uuid) {
            return Err(PoolConfigError::StrangeDonor { uuid: strange.uuid.clone() });
        }
        let (donor_bytes, memory_bytes) = (self.donor_bytes(), self.primary.memory_bytes);
        if self.primary.cap_bytes.is_none() || self.total_bytes() > memory_bytes {
            return Err(PoolConfigError::TrialCap { donor_bytes, memory_bytes });
        }
        Ok(())
    }

    /// The reserve: the policy's, else a sixteenth of the primary and at least 1 GiB, but of a primary below 8 GiB an eighth.
    pub fn reserve_bytes(&self) -> Bytes {
        let primary = self.primary_bytes().get();
        let sized = (primary / 16).max(Bytes::GIB.min(primary / 8));
        self.policy.reserve_bytes.unwrap_or(Bytes::new(sized).floor_to(Bytes::mib(2)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Timestamp;

    fn pool(donors: &[u8], cap_gib: Option<u64>, donors_on_primary: bool) -> PoolConfig {
        let uuid = |card: u8| GpuUuid::from_bytes([card; 16]);
        let at = Timestamp::from_micros(1);
        PoolConfig {
            version: VERSION,
            instance_id: InstanceId::new(at, 1),
            lease_id: LeaseId::new(at, 2),
            generation: Generation::new(1),
            primary: Primary {
                uuid: uuid(0),
                pci_bus_id: String::new(),
                minor: 0,
                memory_bytes: Bytes::gib(96),
                cap_bytes: cap_gib.map(Bytes::gib),
            },
            donors: donors
                .iter()
                .map(|&card| Donor {
                    uuid: uuid(card),
                    pci_bus_id: String::new(),
                    minor: card.into(),
                    reserved_bytes: Bytes::gib(24),
                    link_class: LinkClass::Nvlink,
                    grade: LinkGrade::A,
                    read_mb_per_second: 1,
                    certificate_id: None,
                })
                .collect(),
            policy: Policy::default(),
            broker_socket: PathBuf::new(),
            standin_log: PathBuf::new(),
            donors_on_primary,
            host_tier_bytes: None,
        }
    }

    #[test]
    fn a_host_tier_is_whole_granules_after_the_last_donor_and_in_no_total() {
        use PoolConfigError::{HostTier, Places};
        let tiered = |donors: &[u8], bytes: u64| PoolConfig {
            host_tier_bytes: Some(Bytes::new(bytes)),
            ..pool(donors, None, false)
        };
        let config = tiered(&[1, 2, 3], 4 * Bytes::GIB);
        assert!(config.validate().is_ok());
        assert_eq!(
            (config.host_place(), config.total_bytes()),
            (Some(3), pool(&[1, 2, 3], None, false).total_bytes())
        );
        assert_eq!(pool(&[1], None, false).host_place(), None);
        assert!(matches!(tiered(&[1], 0).validate(), Err(HostTier { .. })));
        assert!(matches!(tiered(&[1], Bytes::GIB + 4096).validate(), Err(HostTier { .. })));
        let full: Vec<u8> = (1..=15).collect();
        assert!(matches!(tiered(&full, Bytes::GIB).validate(), Err(Places { .. })));
        assert!(tiered(&full[..14], Bytes::GIB).validate().is_ok());
    }

    #[test]
    fn a_card_is_named_twice_only_in_a_trial_that_fits_it() {
        use PoolConfigError::{DuplicateCard, StrangeDonor, TrialCap};
        assert!(pool(&[1, 2, 3], None, false).validate().is_ok());
        assert!(matches!(pool(&[1, 1], None, false).validate(), Err(DuplicateCard { .. })));
        assert!(matches!(pool(&[0], Some(24), false).validate(), Err(DuplicateCard { .. })));
        assert!(pool(&[0, 0, 0], Some(24), true).validate().is_ok());
        assert!(matches!(pool(&[0, 1], Some(24), true).validate(), Err(StrangeDonor { .. })));
        assert!(matches!(pool(&[0, 0, 0], Some(25), true).validate(), Err(TrialCap { .. })));
        assert!(matches!(pool(&[0], None, true).validate(), Err(TrialCap { .. })));
    }

    #[test]
    fn the_reserve_is_sized_by_the_primary_unless_it_is_given() {
        let sized = |cap| pool(&[1], cap, false).reserve_bytes();
        assert_eq!(sized(None), Bytes::gib(6));
        assert_eq!(sized(Some(24)), Bytes::mib(1536));
        assert_eq!(sized(Some(8)), Bytes::gib(1));
        assert_eq!(sized(Some(2)), Bytes::mib(256));
        let mut given = pool(&[1], None, false);
        given.policy.reserve_bytes = Some(Bytes::new(0));
        assert_eq!(given.reserve_bytes(), Bytes::new(0));
    }

    #[test]
    fn a_paid_pool_never_carries_the_word() {
        let text = serde_json::to_string(&pool(&[1], None, false)).unwrap();
        assert!(!text.contains("donors_on_primary"));
        assert!(!serde_json::from_str::<PoolConfig>(&text).unwrap().donors_on_primary);
    }
}
