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
    /// Of the broker before this one: processes that have not come back yet still write there.
    previous: Option<&'static Pages>,
}

impl Pages {
    pub(crate) fn map(
        ledger: &OwnedFd,
        local: &OwnedFd,
        slot: u32,
        previous: Option<&'static Pages>,
    ) -> Option<Self> {
        let ledger = map(ledger, size_of::<LedgerPage>(), libc::PROT_READ)?.cast::<LedgerPage>();
        let local = map(local, LOCAL_PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE)?.cast::<LocalPage>();
        // SAFETY: both mappings are never unmapped, page-aligned, sealed against shrinking by the broker, as long as stated, and of
        // atomics, valid for every bit pattern.
        let (ledger, local) = unsafe { (&*ledger, &*local) };
        let slot = (slot != SLOT_NONE && (slot as usize) < SLOTS_MAX).then_some(slot as usize);
        Some(Self { ledger, local, slot, previous })
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

    /// Local bytes of all the tenant's processes but this one: also of those that still write to the page of an earlier broker.
    pub(crate) fn local_bytes_of_others(&self) -> u64 {
        let others = self.others().map(|slot| slot.local_bytes.load(Relaxed)).fold(0, u64::saturating_add);
        let mut page = self.previous;
        let mut left_behind = 0u64;
        while let Some(earlier) = page {
            let waiting = earlier.others().filter(|slot| !self.knows(slot) && alive(slot));
            left_behind =
                waiting.map(|slot| slot.local_bytes.load(Relaxed)).fold(left_behind, u64::saturating_add);
            page = earlier.previous;
        }
        others.saturating_add(left_behind)
    }

    /// Donor bytes of a process of the pool, by its number on the host or in the instance.
    pub(crate) fn donor_bytes_of(&self, pid: u32) -> u64 {
        let own = |slot: &&LocalSlot| slot.pid.load(Relaxed) == pid || slot.pid_inside.load(Relaxed) == pid;
        self.used().iter().find(own).map_or(0, |slot| slot.donor_bytes.load(Relaxed))
    }

    fn used(&self) -> &[LocalSlot] {
        let high = (self.ledger.slots_high.load(Acquire) as usize).min(SLOTS_MAX);
        &self.local.slots[..high]
    }

    fn others(&self) -> impl Iterator<Item = &LocalSlot> {
        self.used().iter().enumerate().filter(|(at, _)| Some(*at) != self.slot).map(|(_, slot)| slot)
    }

    /// Whether the process of an earlier page's slot has a slot here.
    fn knows(&self, slot: &LocalSlot) -> bool {
        let pid = slot.pid.load(Relaxed);
        self.used().iter().any(|here| here.pid.load(Relaxed) == pid)
    }
}

/// Whether the process of a slot lives. A dead broker zeroes no slots.
fn alive(slot: &LocalSlot) -> bool {
    let inside = slot.pid_inside.load(Relaxed);
    let pid = if inside == 0 { slot.pid.load(Relaxed) } else { inside };
    let Ok(pid) = i32::try_from(pid) else { return false };
    // SAFETY: signal 0 is sent to nobody.
    let found = pid > 0 && unsafe { libc::kill(pid, 0) } == 0;
    found || (pid > 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM))
}

fn map(file: &OwnedFd, bytes: usize, protection: i32) -> Option<*const c_void> {
    // SAFETY: a new shared mapping at an address of the kernel's choice disturbs no other memory.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
    (at != libc::MAP_FAILED).then_some(at.cast_const())
}
