//! How many pool bytes lie on which card.

use tarn_protocol::broker_wire::DonorFigures;
use tarn_protocol::control::{CardResidency, CardRole};
use tarn_protocol::ids::GpuUuid;
use tarn_protocol::pool_config::PoolConfig;
use tarn_protocol::units::Bytes;

/// The primary as NVML shows it (only this tenant is on it), the donors as their broker counts them, and the host tier
/// last, if there is one.
pub fn residency(config: &PoolConfig, primary_used: u64, donors: &[DonorFigures]) -> Vec<CardResidency> {
    let primary = CardResidency {
        uuid: config.primary.uuid.clone(),
        role: CardRole::Primary,
        capacity_bytes: config.primary_bytes(),
        used_bytes: Bytes::new(primary_used),
        quarantined_bytes: Bytes::new(0),
    };
    let rest = config.donors.iter().enumerate().map(|(at, donor)| CardResidency {
        uuid: donor.uuid.clone(),
        role: CardRole::Donor,
        capacity_bytes: donor.reserved_bytes,
        used_bytes: Bytes::new(donors.get(at).map_or(0, |figures| figures.leased_bytes)),
        quarantined_bytes: Bytes::new(donors.get(at).map_or(0, |figures| figures.quarantined_bytes)),
    });
    let tier = config.host_place().zip(config.host_tier_bytes).map(|(place, capacity_bytes)| CardResidency {
        uuid: GpuUuid::from_bytes([0; 16]),
        role: CardRole::HostTier,
        capacity_bytes,
        used_bytes: Bytes::new(donors.get(place).map_or(0, |figures| figures.leased_bytes)),
        quarantined_bytes: Bytes::new(donors.get(place).map_or(0, |figures| figures.quarantined_bytes)),
    });
    std::iter::once(primary).chain(rest).chain(tier).collect()
}
