//! The two shared pages: the ledger page that the broker alone writes, and the local page of the clients' slots.
//!
//! Both are sealed memory files. Clients get the same descriptors, but `F_SEAL_FUTURE_WRITE` on the ledger page, added after the
//! broker mapped it, makes every later mapping read-only; the size seals on both keep a client from truncating a page under
//! the broker's feet. What stands in the local page is the clients' word: it is summed for display and never decides anything here.

#![allow(unsafe_code)] // Shared mappings are raw memory; each block says why it is sound.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Relaxed, Release};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use tarn_protocol::broker_wire::{LOCAL_PAGE_BYTES, LedgerPage, LocalPage, LocalSlot, SLOTS_MAX, VERSION};

use crate::admission::Numbered;
use crate::ledger::Account;

#[derive(Debug, thiserror::Error)]
#[error("cannot {what} a shared page")]
pub struct PageError {
    what: &'static str,
    source: Errno,
}

fn failed(what: &'static str) -> impl FnOnce(Errno) -> PageError {
    move |source| PageError { what, source }
}

/// A shared mapping of `bytes` bytes of zero-initialised atomics.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory accessed through atomics only, from any thread.
unsafe impl Send for Mapping {}

impl Mapping {
    pub(crate) fn of(file: impl AsFd, bytes: usize, writable: bool) -> Result<Self, PageError> {
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other memory.
        let at = unsafe { mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }
            .map_err(failed("map"))?;
        let at = NonNull::new(at.cast::<u8>()).ok_or(PageError { what: "map", source: Errno::INVAL })?;
        Ok(Self { at, bytes })
    }

    pub(crate) fn ledger(&self) -> &LedgerPage {
        assert!(self.bytes >= size_of::<LedgerPage>(), "the ledger page is mapped whole");
        // SAFETY: the mapping is page-aligned, long enough (asserted), lives as long as `self`, is sealed against shrinking, and
        // `LedgerPage` consists of atomics, valid for every bit pattern.
        unsafe { self.at.cast::<LedgerPage>().as_ref() }
    }

    pub(crate) fn slots(&self) -> &[LocalSlot] {
        &self.local().slots
    }

    pub(crate) fn local(&self) -> &LocalPage {
        assert!(self.bytes >= LOCAL_PAGE_BYTES, "the local page is mapped whole");
        // SAFETY: as in `ledger`, for a page of atomics.
        unsafe { self.at.cast::<LocalPage>().as_ref() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `Mapping::of` and no reference into it outlives `self`.
        let unmapped = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "unmapping our own mapping cannot fail");
    }
}

/// The broker's side of both pages.
#[derive(Debug)]
pub struct Pages {
    ledger_file: OwnedFd,
    local_file: OwnedFd,
    ledger: Mapping,
    local: Mapping,
    free_slots: BTreeSet<u32>,
}

fn sealed(name: &str, bytes: usize) -> Result<OwnedFd, PageError> {
    let file =
        memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).map_err(failed("create"))?;
    ftruncate(&file, bytes as u64).map_err(failed("size"))?;
    fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW).map_err(failed("seal"))?;
    Ok(file)
}

impl Pages {
    pub fn new() -> Result<Self, PageError> {
        let ledger_file = sealed("tarn-ledger", size_of::<LedgerPage>())?;
        let local_file = sealed("tarn-local", LOCAL_PAGE_BYTES)?;
        let ledger = Mapping::of(&ledger_file, size_of::<LedgerPage>(), true)?;
        let local = Mapping::of(&local_file, LOCAL_PAGE_BYTES, true)?;
        fcntl_add_seals(&ledger_file, SealFlags::FUTURE_WRITE | SealFlags::SEAL).map_err(failed("seal"))?;
        fcntl_add_seals(&local_file, SealFlags::SEAL).map_err(failed("seal"))?;
        let slots = 0..u32::try_from(SLOTS_MAX).unwrap_or(0);
        ledger.ledger().version.store(VERSION, Release);
        Ok(Self { ledger_file, local_file, ledger, local, free_slots: slots.collect() })
    }

    /// What a reply to `Hello` carries: the ledger page, then the local page.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.ledger_file.as_fd(), self.local_file.as_fd()]
    }

    /// Shows the accounts to every client.
    pub fn publish(&self, accounts: &[Account]) {
        let page = self.ledger.ledger();
        for (at, account) in accounts.iter().enumerate().take(page.capacity_bytes.len()) {
            page.capacity_bytes[at].store(account.capacity_bytes, Relaxed);
            page.leased_bytes[at].store(account.leased_bytes, Relaxed);
            page.quarantined_bytes[at].store(account.quarantined_bytes, Relaxed);
        }
        page.donor_count.store(u32::try_from(accounts.len()).unwrap_or(0), Release);
    }

    /// Gives out the lowest free slot, zeroed, to `process`.
    pub fn take_slot(&mut self, process: Numbered) -> Option<u32> {
        let slot = self.free_slots.pop_first()?;
        let at = &self.local.slots()[slot as usize];
        at.local_bytes.store(0, Relaxed);
        at.donor_bytes.store(0, Relaxed);
        at.pid_inside.store(process.inside, Relaxed);
        at.pid.store(process.outside, Release);
        self.ledger.ledger().slots_high.fetch_max(slot + 1, Release);
        Some(slot)
    }

    pub fn return_slot(&mut self, slot: u32) {
        let at = &self.local.slots()[slot as usize];
        at.pid.store(0, Relaxed);
        at.pid_inside.store(0, Relaxed);
        at.local_bytes.store(0, Relaxed);
        at.donor_bytes.store(0, Release);
        self.free_slots.insert(slot);
    }
}
