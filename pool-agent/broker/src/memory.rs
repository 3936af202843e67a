//! What the broker needs of the cards: create a chunk, let it go, and see how much is in use.

use std::os::fd::OwnedFd;

use crate::ledger::Donor;

/// The driver's code for "out of memory".
pub const DRIVER_OUT_OF_MEMORY: u32 = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the driver refused with code {code}")]
pub struct DriverRefusal {
    pub code: u32,
}

/// Donor memory. A chunk's handle is used once and never recycled: release, wait until the card shows it, create anew. On driver 580 a
/// handle that is kept and lent again shows its next borrower every word of the last, while 90 GiB that were released full of
/// 0xA5, by an exit or by SIGKILL, held nothing but zeroes for the next process.
pub trait DonorMemory {
    type Handle;

    /// Makes `bytes` of memory on the donor and a descriptor of it for other processes.
    fn create(&mut self, donor: Donor, bytes: u64) -> Result<(Self::Handle, OwnedFd), DriverRefusal>;

    /// Another descriptor of a chunk.
    fn export(&self, handle: &Self::Handle) -> Result<OwnedFd, DriverRefusal>;

    /// Whether a network card may reach the chunks of this donor.
    fn rdma(&self, donor: Donor) -> bool;

    /// Whether chunks may be made before anybody asks: memory of a card lies idle anyway, the host's does not.
    fn makes_ahead(&self, donor: Donor) -> bool {
        let _ = donor;
        true
    }

    /// A predecessor lent this chunk, and nobody has given it back yet.
    fn inherit(&mut self, donor: Donor, bytes: u64) {
        let _ = (donor, bytes);
    }

    /// A chunk that was inherited has been given back.
    fn returned(&mut self, donor: Donor, bytes: u64) {
        let _ = (donor, bytes);
    }

    /// Lets go of this process's reference.
    fn release(&mut self, handle: Self::Handle);

    /// Bytes in use on the card, by everybody; `None` when the card does not say.
    fn used_bytes(&mut self, donor: Donor) -> Option<u64>;
}
