//! Where native blocks lie: one large sparse mapping per card, first fit. Physical contiguity means nothing on a card, so
//! the arena spans several times the card's memory and fragmentation never refuses what the ledger grants.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};

use crate::code::Code;
use crate::memory::memory_file;

pub(crate) const ALIGNMENT: u64 = 512;
const SPAN_FACTOR: u64 = 8;
const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;

#[derive(Debug)]
pub(crate) struct Arenas(Vec<Option<Arena>>);

#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) base: u64,
    pub(crate) file: OwnedFd,
    /// Free offsets to lengths.
    free: BTreeMap<u64, u64>,
}

impl Arenas {
    pub(crate) fn new(cards: usize) -> Self {
        Self((0..cards).map(|_| None).collect())
    }

    /// The card's arena, made on first use.
    pub(crate) fn of(&mut self, card: usize, card_bytes: u64) -> Result<&mut Arena, Code> {
        let slot = &mut self.0[card];
        if slot.is_none() {
            *slot = Some(Arena::new(card_bytes * SPAN_FACTOR)?);
        }
        slot.as_mut().ok_or(Code::UNKNOWN)
    }
}

impl Arena {
    fn new(span: u64) -> Result<Self, Code> {
        let file = memory_file("tarn-sim-native", span)?;
        let length = usize::try_from(span).map_err(|_| Code::OUT_OF_MEMORY)?;
        // SAFETY: a new shared mapping at an address the kernel picks.
        let base = unsafe {
            let (access, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
            libc::mmap(std::ptr::null_mut(), length, access, flags, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(Code::OUT_OF_MEMORY);
        }
        // SAFETY: the mapping just made. A forked child does not inherit a card's memory.
        unsafe { libc::madvise(base, length, libc::MADV_DONTFORK) };
        Ok(Self { base: base as u64, file, free: BTreeMap::from([(0, span)]) })
    }

    /// An address for `bytes` (a multiple of the alignment); large blocks start on a large page.
    pub(crate) fn place(&mut self, bytes: u64) -> Result<u64, Code> {
        let alignment = if bytes >= HUGE { HUGE } else { ALIGNMENT };
        let fits = |(offset, length): (&u64, &u64)| {
            let start = (self.base + offset).next_multiple_of(alignment) - self.base;
            (start + bytes <= offset + length).then_some((*offset, *length, start))
        };
        let (offset, length, start) = self.free.iter().find_map(fits).ok_or(Code::OUT_OF_MEMORY)?;
        self.free.remove(&offset);
        if start > offset {
            self.free.insert(offset, start - offset);
        }
        if start + bytes < offset + length {
            self.free.insert(start + bytes, offset + length - start - bytes);
        }
        Ok(self.base + start)
    }

    /// Takes a block back; its whole pages go back to the machine and read as zero next time.
    pub(crate) fn take_back(&mut self, address: u64, bytes: u64) {
        zero_pages(address, bytes);
        let (mut start, mut end) = (address - self.base, address - self.base + bytes);
        if let Some((before, length)) = self.free.range(..start).next_back().map(|(o, l)| (*o, *l))
            && before + length == start
        {
            self.free.remove(&before);
            start = before;
        }
        if let Some(length) = self.free.remove(&end) {
            end += length;
        }
        self.free.insert(start, end - start);
    }
}

/// Drops the whole pages inside a range of shared sparse memory and answers that inner range.
pub(crate) fn zero_pages(address: u64, bytes: u64) -> Option<(u64, u64)> {
    let (start, end) = (address.next_multiple_of(PAGE), (address + bytes) / PAGE * PAGE);
    if start >= end {
        return None;
    }
    // SAFETY: the range lies inside a shared mapping of a memory file that this driver made; dropped pages read as zero.
    let code = unsafe {
        libc::madvise(start as *mut libc::c_void, usize::try_from(end - start).ok()?, libc::MADV_REMOVE)
    };
    (code == 0).then_some((start, end))
}
