//! From a pool config and what a predecessor left to a desk that can serve.

use std::path::Path;

use tarn_protocol::pool_config::PoolConfig;

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

/// Builds the desk. `present` says whether the driver has a donor; one that it lacks gives nothing.
pub fn open_desk<M: DonorMemory>(
    config: &PoolConfig,
    state: &Path,
    mut memory: M,
    present: impl Fn(&M, Donor) -> bool,
) -> Result<Desk<M>, StartError> {
    let capacities: Vec<u64> = config
        .donors
        .iter()
        .enumerate()
        .map(|(at, donor)| if present(&memory, Donor(at)) { donor.reserved_bytes.get() } else { 0 })
        .collect();
    let used: Vec<u64> = (0..capacities.len()).map(|at| memory.used_bytes(Donor(at)).unwrap_or(0)).collect();

    // A past of other cards is another pool's: nothing in it speaks about these.
    let past = Past::read(state)?.filter(|past| {
        past.donors.iter().map(|line| &line.uuid).eq(config.donors.iter().map(|donor| &donor.uuid))
    });
    let donors: Vec<DonorLine> = match &past {
        Some(past) => past.donors.clone(),
        None => config
            .donors
            .iter()
            .zip(&used)
            .map(|(donor, &baseline_bytes)| DonorLine { uuid: donor.uuid.clone(), baseline_bytes })
            .collect(),
    };
    let ledger = match past {
        None => Ledger::new(&capacities, LEASES_PER_CLIENT_MAX),
        Some(past) => {
            let mut ledger =
                Ledger::resumed(&capacities, LEASES_PER_CLIENT_MAX, past.chunks, past.next_lease);
            for (at, line) in donors.iter().enumerate() {
                ledger.quarantine_unexplained(Donor(at), used[at].saturating_sub(line.baseline_bytes));
            }
            ledger
        }
    };
    let journal = Journal::create(state, donors.clone(), &ledger)?;
    Ok(Desk::new(ledger, memory, journal, Pages::new()?, &donors))
}
