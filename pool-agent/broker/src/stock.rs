//! Chunks made ahead of growth: a tenant that grows gets them at once, however long the card takes to make memory.
//!
//! The broker allocates nothing before a tenant does, and keeps nothing once none is left: a donor is stocked after it lent a large chunk,
//! one granule at a time in quiet moments, never beyond what the ledger has free there, and the stock goes when the donor's last
//! lease has ended. Stocked bytes are free in the ledger and in use on the card. Whenever the card refuses something for want of
//! memory, the stock gives way.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::ledger::Donor;
use crate::memory::DonorMemory;

/// What is stocked: large enough that few make a model's growth, small enough to be moved one at a time.
pub const GRANULE: u64 = 256 << 20;
/// Bytes made ahead on a donor.
pub const TARGET: u64 = 4 << 30;
/// Quiet time before another granule is made, so that a burst of requests is not kept waiting by it.
pub const PAUSE: Duration = Duration::from_millis(3);

#[derive(Debug)]
pub struct Stock<H> {
    shelves: Vec<VecDeque<(H, OwnedFd)>>,
    /// A donor that should be stocked, and when the next granule is due.
    due: Option<(Donor, Duration)>,
}

impl<H> Stock<H> {
    pub fn new(donors: usize) -> Self {
        Self { shelves: (0..donors).map(|_| VecDeque::new()).collect(), due: None }
    }

    pub fn bytes(&self, donor: Donor) -> u64 {
        self.shelves.get(donor.0).map_or(0, |shelf| shelf.len() as u64 * GRANULE)
    }

    pub fn take(&mut self, donor: Donor) -> Option<(H, OwnedFd)> {
        self.shelves.get_mut(donor.0)?.pop_front()
    }

    /// The donor lent something large: more of that may follow.
    pub fn expect_more(&mut self, donor: Donor, now: Duration) {
        self.due = Some((donor, now + PAUSE));
    }

    pub fn next_wake(&self) -> Option<Duration> {
        self.due.map(|(_, at)| at)
    }

    /// Makes one granule if one is due and `free_bytes` of the donor's ledger allow it.
    pub fn replenish<M: DonorMemory<Handle = H>>(
        &mut self,
        memory: &mut M,
        free_bytes: impl Fn(Donor) -> u64,
        now: Duration,
    ) {
        let Some((donor, _)) = self.due.filter(|(_, at)| *at <= now) else { return };
        self.due = None;
        let stocked = self.bytes(donor);
        if stocked >= TARGET || stocked + GRANULE > free_bytes(donor) {
            return;
        }
        match memory.create(donor, GRANULE) {
            Ok(chunk) => {
                self.shelves[donor.0].push_back(chunk);
                self.due = Some((donor, now + PAUSE));
            }
            // The card is fuller than the ledger: nothing is made ahead there for now.
            Err(refused) => tracing::debug!(donor = donor.0, code = refused.code, "no granule made ahead"),
        }
    }

    /// Lets go of what a donor has in stock beyond `keep_bytes`. False: there was nothing.
    pub fn clear<M: DonorMemory<Handle = H>>(
        &mut self,
        memory: &mut M,
        donor: Donor,
        keep_bytes: u64,
    ) -> bool {
        let Some(shelf) = self.shelves.get_mut(donor.0) else { return false };
        let keep = usize::try_from(keep_bytes / GRANULE).unwrap_or(usize::MAX).min(shelf.len());
        let surplus = shelf.split_off(keep);
        let any = !surplus.is_empty();
        for (handle, descriptor) in surplus {
            drop(descriptor);
            memory.release(handle);
        }
        any
    }
}
