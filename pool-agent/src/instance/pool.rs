//! What the pool of an instance is: the config that broker and stand-ins read, from the spec and what the cards really have.

use std::path::Path;

use tarn_protocol::broker_wire::DONORS_MAX;
use tarn_protocol::control::{DesiredDonor, InstanceSpec};
use tarn_protocol::hardware::{Gpu, LinkClass};
use tarn_protocol::ids::{GpuUuid, InstanceId, LeaseId};
use tarn_protocol::pool_config::{Donor, PoolConfig, Primary, VERSION};
use tarn_protocol::units::{Bytes, Generation};

use crate::nvml::card::CardSample;

/// More than this in use on an idle card is somebody's.
pub const IDLE_USED_MAX: u64 = 15 * Bytes::MIB;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    #[error("card {0} is not on this host")]
    NoCard(GpuUuid),
    #[error("card {uuid} cannot be read: {detail}")]
    Silent { uuid: GpuUuid, detail: String },
    #[error("card {uuid} is not idle: {used_bytes} bytes in use")]
    NotIdle { uuid: GpuUuid, used_bytes: u64 },
    #[error("card {0} gives no memory")]
    Empty(GpuUuid),
}

/// A card and what it showed while idle.
#[derive(Debug, Clone)]
pub struct IdleCard {
    pub gpu: Gpu,
    pub sample: CardSample,
}

/// Where things are as a process inside the instance sees them.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    pub broker_socket: &'a Path,
    pub standin_log: &'a Path,
}

/// Composes the config. Donors give what is really free on them when idle, in whole granules; over PCIe no more than their BAR1
/// window shows.
pub fn compose(
    (instance_id, lease_id, generation): (&InstanceId, &LeaseId, Generation),
    spec: &InstanceSpec,
    card: impl Fn(&GpuUuid) -> Result<IdleCard, PoolError>,
    places: Places<'_>,
) -> Result<PoolConfig, PoolError> {
    let found = |uuid: &GpuUuid| {
        let found = card(uuid)?;
        let slice = spec.cap_bytes.is_some() && *uuid == spec.primary;
        if !slice && found.sample.used_bytes > IDLE_USED_MAX {
            return Err(PoolError::NotIdle { uuid: uuid.clone(), used_bytes: found.sample.used_bytes });
        }
        Ok(found)
    };
    let primary = found(&spec.primary)?.gpu;
    let donors =
        spec.donors.iter().map(|wanted| donor(wanted, &found(&wanted.uuid)?, spec.policy.granule_bytes));
    Ok(PoolConfig {
        version: VERSION,
        instance_id: instance_id.clone(),
        lease_id: lease_id.clone(),
        generation,
        primary: Primary {
            uuid: primary.uuid,
            pci_bus_id: primary.pci_bus_id,
            minor: primary.minor,
            memory_bytes: primary.memory_bytes,
            cap_bytes: spec.cap_bytes,
        },
        donors: donors.collect::<Result<_, _>>()?,
        policy: spec.policy.clone(),
        broker_socket: places.broker_socket.to_owned(),
        standin_log: places.standin_log.to_owned(),
        donors_on_primary: false,
        host_tier_bytes: None,
    })
}

/// The host tier of a pool: `most`, in whole granules, where there is a broker that lends it. An instance without donors has none.
pub fn host_tier(config: &PoolConfig, most: Option<Bytes>) -> Option<Bytes> {
    let lent = !config.donors.is_empty() && config.donors.len() < DONORS_MAX;
    most.filter(|_| lent)
        .map(|most| most.floor_to(config.policy.granule_bytes))
        .filter(|bytes| bytes.get() > 0)
}

fn donor(wanted: &DesiredDonor, found: &IdleCard, granule: Bytes) -> Result<Donor, PoolError> {
    let free = Bytes::new(found.sample.free_bytes);
    let reachable = match wanted.link_class {
        LinkClass::PcieP2p => free.min(found.gpu.bar1_bytes),
        LinkClass::Nvlink | LinkClass::None => free,
    };
    let reserved_bytes = reachable.floor_to(granule);
    if reserved_bytes.get() == 0 {
        return Err(PoolError::Empty(wanted.uuid.clone()));
    }
    Ok(Donor {
        uuid: wanted.uuid.clone(),
        pci_bus_id: found.gpu.pci_bus_id.clone(),
        minor: found.gpu.minor,
        reserved_bytes,
        link_class: wanted.link_class,
        grade: wanted.grade,
        read_mb_per_second: wanted.read_mb_per_second,
        certificate_id: wanted.certificate_id.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_protocol::control::Goal;
    use tarn_protocol::hardware::{GpuHealth, LinkGrade};
    use tarn_protocol::units::Timestamp;

    fn idle(uuid: &GpuUuid, bar1: Bytes, used: u64) -> IdleCard {
        let gpu = Gpu {
            uuid: uuid.clone(),
            model: "card".to_owned(),
            serial: None,
            memory_bytes: Bytes::mib(24_564),
            bar1_bytes: bar1,
            pci_bus_id: "0000:01:00.0".to_owned(),
            minor: 0,
            numa_node: None,
            pcie_switch: None,
            compute_capability: "8.9".to_owned(),
            mig_enabled: false,
            display_active: false,
            health: GpuHealth::Ok,
        };
        let free_bytes = 24_561 * Bytes::MIB + 4096;
        IdleCard { gpu, sample: CardSample { used_bytes: used, free_bytes, ..CardSample::default() } }
    }

    fn check(class: LinkClass, bar1: Bytes, used: u64, expected: Result<u64, bool>) {
        let id = InstanceId::new(Timestamp::from_micros(0), 1);
        let mut spec = crate::instance::samples::desired(id.clone(), Generation::new(1), Goal::Running).spec;
        spec.donors = vec![DesiredDonor {
            uuid: GpuUuid::from_bytes([2; 16]),
            link_class: class,
            grade: LinkGrade::A,
            read_mb_per_second: 50_000,
            certificate_id: None,
        }];
        let places = Places { broker_socket: Path::new("/b"), standin_log: Path::new("/l") };
        let lease = LeaseId::new(Timestamp::from_micros(0), 1);
        let config =
            compose((&id, &lease, Generation::new(1)), &spec, |uuid| Ok(idle(uuid, bar1, used)), places);
        match expected {
            Ok(bytes) => {
                let config = config.unwrap();
                config.validate().unwrap();
                assert_eq!(config.donors[0].reserved_bytes, Bytes::new(bytes));
            }
            Err(_) => assert!(matches!(config, Err(PoolError::NotIdle { .. }))),
        }
    }

    #[test]
    fn donors_give_what_is_free_in_whole_granules() {
        check(LinkClass::Nvlink, Bytes::gib(1), 0, Ok(24_560 * Bytes::MIB));
        check(LinkClass::Nvlink, Bytes::gib(1), 16 * Bytes::MIB, Err(true));
    }

    #[test]
    fn p4_over_pcie_a_donor_gives_no_more_than_its_bar1() {
        check(LinkClass::PcieP2p, Bytes::gib(16), 0, Ok(16 * Bytes::GIB));
        check(LinkClass::PcieP2p, Bytes::gib(32), 0, Ok(24_560 * Bytes::MIB));
    }
}
