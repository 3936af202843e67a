//! Bytes that this process took: from the primary, against a cap that all the tenant's processes share, and from donors.
//!
//! Each process owns one slot of the shared local page and writes no other; the broker zeroes it when the process goes. A charge
//! is made first and then the sum is looked at, so two processes can refuse each other but never pass the cap together; a
//! refusal is therefore looked at again a few times before it counts.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use tarn_protocol::broker_wire::LocalSlot;

use crate::pages::Pages;

/// Looks at a full cap before it is believed.
const LOOKS_MAX: u32 = 4;

#[derive(Debug, Default)]
pub(crate) struct Account {
    local_bytes: AtomicU64,
    donor_bytes: AtomicU64,
    host_bytes: AtomicU64,
    /// Of address space, in stitched and opened ranges.
    addresses: AtomicU64,
}

/// Address space that one process's stitched and opened ranges may take: half of what a driver's addresses of 47 bits span, so that
/// frameworks, which reserve more than the device's total at a time, find room beside them.
pub(crate) const ADDRESSES_MAX: u64 = 64 << 40;

/// The cap has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverCap;

/// Copies a figure to the slot; a newer figure of another thread is never overwritten for good.
fn mirror(own: &AtomicU64, shown: &AtomicU64) {
    loop {
        let bytes = own.load(SeqCst);
        shown.store(bytes, SeqCst);
        if own.load(SeqCst) == bytes {
            return;
        }
    }
}

/// Adds, and says what was there before; `None`, and nothing is added, when the sum fits no number.
fn add(own: &AtomicU64, bytes: u64) -> Option<u64> {
    own.fetch_update(SeqCst, SeqCst, |held| held.checked_add(bytes)).ok()
}

fn subtract(own: &AtomicU64, bytes: u64) {
    // Never below zero, whatever was freed twice.
    let _ = own.fetch_update(SeqCst, SeqCst, |held| Some(held.saturating_sub(bytes)));
}

impl Account {
    pub(crate) fn local_bytes(&self) -> u64 {
        self.local_bytes.load(SeqCst)
    }

    pub(crate) fn donor_bytes(&self) -> u64 {
        self.donor_bytes.load(SeqCst)
    }

    /// Takes `bytes` of the primary, if the cap of all processes together allows it. `others`: what the tenant's others hold now.
    pub(crate) fn charge_local(
        &self,
        bytes: u64,
        cap: Option<u64>,
        pages: Option<&Pages>,
        others: impl Fn() -> u64,
    ) -> Result<(), OverCap> {
        // What can never be had is not charged for a moment either: others would see it.
        if cap.is_some_and(|cap| bytes > cap) {
            return Err(OverCap);
        }
        for look in 0..LOOKS_MAX {
            add(&self.local_bytes, bytes).ok_or(OverCap)?;
            self.show(pages);
            let Some(cap) = cap else { return Ok(()) };
            if self.local_bytes().saturating_add(others()) <= cap {
                return Ok(());
            }
            self.return_local(bytes, pages);
            if look + 1 < LOOKS_MAX {
                std::thread::yield_now();
            }
        }
        Err(OverCap)
    }

    /// Bytes of the primary that are taken already, cap or not.
    pub(crate) fn add_local(&self, bytes: u64, pages: Option<&Pages>) {
        self.local_bytes.fetch_add(bytes, SeqCst);
        self.show(pages);
    }

    pub(crate) fn return_local(&self, bytes: u64, pages: Option<&Pages>) {
        subtract(&self.local_bytes, bytes);
        self.show(pages);
    }

    pub(crate) fn charge_donor(&self, bytes: u64, pages: Option<&Pages>) {
        self.donor_bytes.fetch_add(bytes, SeqCst);
        self.show(pages);
    }

    pub(crate) fn host_bytes(&self) -> u64 {
        self.host_bytes.load(SeqCst)
    }

    /// Memory of the host tier: this process's own business, in no window that shows device memory.
    pub(crate) fn charge_host(&self, bytes: u64) {
        self.host_bytes.fetch_add(bytes, SeqCst);
    }

    pub(crate) fn return_host(&self, bytes: u64) {
        subtract(&self.host_bytes, bytes);
    }

    pub(crate) fn return_donor(&self, bytes: u64, pages: Option<&Pages>) {
        subtract(&self.donor_bytes, bytes);
        self.show(pages);
    }

    /// Takes address space; false beyond [`ADDRESSES_MAX`].
    pub(crate) fn take_addresses(&self, bytes: u64) -> bool {
        let Some(taken) = add(&self.addresses, bytes) else { return false };
        let fits = taken + bytes <= ADDRESSES_MAX;
        if !fits {
            subtract(&self.addresses, bytes);
        }
        fits
    }

    pub(crate) fn return_addresses(&self, bytes: u64) {
        subtract(&self.addresses, bytes);
    }

    /// Writes this process's slot: after every change, and when a new broker gives a new slot.
    pub(crate) fn show(&self, pages: Option<&Pages>) {
        let Some(LocalSlot { local_bytes, donor_bytes, .. }) = pages.and_then(Pages::own) else { return };
        mirror(&self.local_bytes, local_bytes);
        mirror(&self.donor_bytes, donor_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_a_budget_too() {
        let account = Account::default();
        assert!(account.take_addresses(ADDRESSES_MAX - 2));
        assert!(!account.take_addresses(3) && !account.take_addresses(u64::MAX));
        assert!(!account.take_addresses(3), "a refusal takes nothing and gives nothing");
        assert!(account.take_addresses(2));
        account.return_addresses(ADDRESSES_MAX);
        assert!(account.take_addresses(ADDRESSES_MAX));
    }

    #[test]
    fn a_request_beyond_all_numbers_leaves_the_books_alone() {
        let account = Account::default();
        assert_eq!(account.charge_local(60, None, None, || 0), Ok(()));
        for cap in [None, Some(100)] {
            for bytes in [u64::MAX, u64::MAX - 30] {
                assert_eq!(account.charge_local(bytes, cap, None, || 0), Err(OverCap));
                assert_eq!(account.local_bytes(), 60);
            }
        }
    }

    #[test]
    fn a_charge_over_the_cap_leaves_nothing_behind() {
        let account = Account::default();
        assert_eq!(account.charge_local(60, Some(100), None, || 0), Ok(()));
        assert_eq!(account.charge_local(41, Some(100), None, || 0), Err(OverCap));
        assert_eq!(account.charge_local(40, Some(100), None, || 1), Err(OverCap));
        assert_eq!(account.charge_local(40, Some(100), None, || 0), Ok(()));
        account.return_local(200, None);
        assert_eq!(account.local_bytes(), 0, "never below zero");
    }
}
