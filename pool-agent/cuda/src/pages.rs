//! The broker's two pages in this process: the ledger page to read, and our slot of the local page to write.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use tarn_protocol::broker_wire::{
    DonorFigures, LOCAL_PAGE_BYTES, LedgerPage, LocalPage, LocalSlot, SLOT_NONE, SLOTS_MAX,
};
use tarn_protocol::reach::ReachTable;

/// Mapped for the life of the process: a reader on another thread may hold a page of a broker that is long gone.
#[derive(Debug)]
pub(crate) struct Pages {
    ledger: &'static LedgerPage,
    local: &'static LocalPage,
    slot: Option<usize>,
}

impl Pages {
    pub(crate) fn map(ledger: &OwnedFd, local: &OwnedFd, slot: u32) -> Option<Self> {
        let ledger = map(ledger, size_of::<LedgerPage>(), libc::PROT_READ)?.cast::<LedgerPage>();
        let local = map(local, LOCAL_PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE)?.cast::<LocalPage>();
        // SAFETY: both mappings are never unmapped, page-aligned, sealed against shrinking by the broker, as long as stated, and of
        // atomics, valid for every bit pattern.
        let (ledger, local) = unsafe { (&*ledger, &*local) };
        let slot = (slot != SLOT_NONE && (slot as usize) < SLOTS_MAX).then_some(slot as usize);
        Some(Self { ledger, local, slot })
    }

    pub(crate) fn donors(&self) -> impl Iterator<Item = DonorFigures> + '_ {
        self.ledger.donors()
    }

    /// What processes have proven to reach.
    pub(crate) fn reached(&self) -> &ReachTable {
        &self.local.reached
    }

    /// Our own slot.
    pub(crate) fn own(&self) -> Option<&LocalSlot> {
        self.local.slots.get(self.slot?)
    }

    /// Local bytes of all the tenant's processes but this one.
    pub(crate) fn local_bytes_of_others(&self) -> u64 {
        let high = (self.ledger.slots_high.load(Acquire) as usize).min(SLOTS_MAX);
        let others = self.local.slots[..high].iter().enumerate().filter(|(at, _)| Some(*at) != self.slot);
        others.map(|(_, slot)| slot.local_bytes.load(Relaxed)).fold(0, u64::saturating_add)
    }
}

fn map(file: &OwnedFd, bytes: usize, protection: i32) -> Option<*const c_void> {
    // SAFETY: a new shared mapping at an address of the kernel's choice disturbs no other memory.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    (at != libc::MAP_FAILED).then_some(at.cast_const())
}
