//! From a pool config and what a predecessor left to a desk that can serve.

use std::path::Path;

use tarn_protocol::ids::GpuUuid;
use tarn_protocol::pool_config::PoolConfig;
use tarn_protocol::units::Bytes;

use crate::desk::Desk;
use crate::journal::{DonorLine, Journal, JournalError, Past};
use crate::ledger::{Donor, Ledger};
use crate::memory::DonorMemory;
use crate::pages::{PageError, Pages};

/// Leases one process may hold: every granule of fifteen 48 GiB donors would be 368,640; 2 MiB interleave of 128 GiB is half of this.
pub const LEASES_PER_CLIENT_MAX: usize = 131_072;

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("the past ledger cannot be carried on")]
    Journal(#[from] JournalError),
    #[error("the shared pages cannot be made")]
    Pages(#[from] PageError),
}

/// What each place of a pool gives: its donors in their order, then the host tier.
pub fn given(config: &PoolConfig) -> Vec<u64> {
    let donors = config.donors.iter().map(|donor| donor.reserved_bytes);
    donors.chain(config.host_tier_bytes).map(Bytes::get).collect()
}

/// What each place is called: a donor's card, and nil for the host.
pub fn named(config: &PoolConfig) -> Vec<GpuUuid> {
    let host = config.host_tier_bytes.map(|_| GpuUuid::from_bytes([0; 16]));
    config.donors.iter().map(|donor| donor.uuid.clone()).chain(host).collect()
}

/// Builds the desk. `present` says whether the driver has a donor; one that it lacks gives nothing.
pub fn open_desk<M: DonorMemory>(
    config: &PoolConfig,
    state: &Path,
    mut memory: M,
    present: impl Fn(&M, Donor) -> bool,
) -> Result<Desk<M>, StartError> {
    let capacities: Vec<u64> = given(config)
        .into_iter()
        .enumerate()
        .map(|(at, bytes)| if present(&memory, Donor(at)) { bytes } else { 0 })
        .collect();
    let uuids = named(config);
    let used: Vec<u64> = (0..capacities.len()).map(|at| memory.used_bytes(Donor(at)).unwrap_or(0)).collect();

    // A past of other cards is another pool's: nothing in it speaks about these.
    let past = Past::read(state)?.filter(|past| past.donors.iter().map(|line| &line.uuid).eq(&uuids));
    let donors: Vec<DonorLine> = match &past {
        Some(past) => past.donors.clone(),
        None => uuids
            .into_iter()
            .zip(&used)
            .map(|(uuid, &baseline_bytes)| DonorLine { uuid, baseline_bytes })
            .collect(),
    };
    let ledger = match past {
        None => Ledger::new(&capacities, LEASES_PER_CLIENT_MAX),
        Some(past) => {
            for chunk in past.chunks.values() {
                memory.inherit(chunk.donor, chunk.bytes);
            }
            let mut ledger =
                Ledger::resumed(&capacities, LEASES_PER_CLIENT_MAX, past.chunks, past.next_lease);
            for (at, line) in donors.iter().enumerate() {
                ledger.quarantine_unexplained(Donor(at), used[at].saturating_sub(line.baseline_bytes));
            }
            ledger
        }
    };
    let ledger = ledger.with_overflow(config.host_place().map(Donor));
    let journal = Journal::create(state, donors.clone(), &ledger)?;
    Ok(Desk::new(ledger, memory, journal, Pages::new()?, &donors))
}
