//! The broker's two pages in this process: the ledger page to read, and our slot of the local page to write.

use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use tarn_protocol::broker_wire::{
    DonorFigures, LOCAL_PAGE_BYTES, LedgerPage, LocalSlot, SLOT_NONE, SLOTS_MAX,
};

/// Mapped for the life of the process: a reader on another thread may hold a page of a broker that is long gone.
#[derive(Debug)]
pub(crate) struct Pages {
    ledger: &'static LedgerPage,
    slots: &'static [LocalSlot],
    slot: Option<usize>,
}

impl Pages {
    pub(crate) fn map(ledger: &OwnedFd, local: &OwnedFd, slot: u32) -> Option<Self> {
        let ledger = map(ledger, size_of::<LedgerPage>(), libc::PROT_READ)?.cast::<LedgerPage>();
        let slots = map(local, LOCAL_PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE)?.cast::<LocalSlot>();
        // SAFETY: both mappings are never unmapped, page-aligned, sealed against shrinking by the broker, as long as stated, and of
        // atomics, valid for every bit pattern.
        let (ledger, slots) = unsafe { (&*ledger, std::slice::from_raw_parts(slots, SLOTS_MAX)) };
        let slot = (slot != SLOT_NONE && (slot as usize) < SLOTS_MAX).then_some(slot as usize);
        Some(Self { ledger, slots, slot })
    }

    pub(crate) fn donors(&self) -> impl Iterator<Item = DonorFigures> + '_ {
        self.ledger.donors()
    }

    /// Our own slot.
    pub(crate) fn own(&self) -> Option<&LocalSlot> {
        self.slots.get(self.slot?)
    }

    /// Local bytes of all the tenant's processes but this one.
    pub(crate) fn local_bytes_of_others(&self) -> u64 {
        let high = (self.ledger.slots_high.load(Acquire) as usize).min(SLOTS_MAX);
        let others = self.slots[..high].iter().enumerate().filter(|(at, _)| Some(*at) != self.slot);
        others.map(|(_, slot)| slot.local_bytes.load(Relaxed)).fold(0, u64::saturating_add)
    }
}

fn map(file: &OwnedFd, bytes: usize, protection: i32) -> Option<*const c_void> {
    // SAFETY: a new shared mapping at an address of the kernel's choice disturbs no other memory.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    (at != libc::MAP_FAILED).then_some(at.cast_const())
}
