//! Carrying out a placement: one address range, mapped piece by piece from local and donor memory, or nothing at all.
//!
//! Cards change between looking and taking, so a piece that fails for want of memory shrinks what its card is thought to have and
//! the rest is planned anew; each failure empties a donor or halves the primary's share, so this ends. Any other failure undoes
//! everything: a half-built allocation never stays.
//!
//! On driver 580 the dear part of a chunk is its descriptor: 0.6 ms for the export and 0.55 ms for the last close of it at 2 MiB, 0.85
//! and 0.75 ms at 8 GiB, with a context or without; so few large chunks are cheap and many small ones are not. The same memory
//! without a descriptor is mapped in 0.04 ms, as fast as a native allocation, and every step of either takes six times as long
//! after a pause of 20 ms: a rested driver is slow, not a size. Being refused is dear too: 2.3 ms for a handle, 4.6 ms for an allocation.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::abi::{
    ACCESS_READ_WRITE, AccessDesc, AllocationProp, Code, DevicePtr, HANDLE_POSIX_FD, Handle, INVALID_HANDLE,
    Location, OUT_OF_MEMORY, SUCCESS,
};
use crate::blocks::{Holding, Piece, Sharing, Spilled};
use crate::hints::scope;
use crate::link::{LinkError, monotonic_ms};
use crate::placement::{Cards, Place, Rules, Segment, UNIT, plan};
use crate::pool::{Pool, as_pointer};
use crate::real;

/// A block under construction; dropping it undoes it.
struct Draft<'a> {
    pool: &'a Pool,
    start: DevicePtr,
    mapped_bytes: u64,
    pieces: Vec<Piece>,
    filled_bytes: u64,
}

/// Rounded up to what can be mapped; `None` when that does not fit a number.
pub(crate) fn mappable(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(UNIT)
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Builds a block of `bytes` over `cards`, owned by the calling thread's context.
pub(crate) fn build(pool: &Pool, bytes: u64, mut cards: Cards, rules: Rules) -> Result<Arc<Spilled>, Code> {
    let mapped_bytes = mappable(bytes).ok_or(OUT_OF_MEMORY)?;
    // Refused before anything is touched when it cannot fit, but not on the word of a page that is a moment old.
    if plan(mapped_bytes, bytes, &cards, rules).is_none() {
        pool.settle(&mut cards);
        plan(mapped_bytes, bytes, &cards, rules).ok_or(OUT_OF_MEMORY)?;
    }
    let mut draft = Draft::reserve(pool, mapped_bytes)?;
    while draft.filled_bytes < mapped_bytes {
        let rest = mapped_bytes - draft.filled_bytes;
        let segments = plan(rest, bytes, &cards, rules).ok_or(OUT_OF_MEMORY)?;
        for segment in segments {
            let got = draft.add(segment)?;
            cards.take(Segment { bytes: got, ..segment });
            if got < segment.bytes {
                shrink(pool, &mut cards, segment);
                break;
            }
        }
    }
    draft.grant()?;
    Ok(draft.finish(bytes, Sharing::Own(AtomicU64::new(0))))
}

/// A card had less than it showed. A donor gave what it had; the primary refuses a whole piece, so a smaller one is tried.
pub(crate) fn shrink(pool: &Pool, cards: &mut Cards, refused: Segment) {
    match refused.place {
        Place::Donor(_) => cards.exhaust(refused.place),
        Place::Local => cards.local_bytes = pool.cards().local_bytes.min(refused.bytes / 2),
    }
}

impl<'a> Draft<'a> {
    fn reserve(pool: &'a Pool, mapped_bytes: u64) -> Result<Self, Code> {
        if !pool.account.take_addresses(mapped_bytes) {
            crate::log::warn("cuda: this process's ranges fill the address space set aside for them");
            return Err(OUT_OF_MEMORY);
        }
        let mut start = 0;
        // SAFETY: the out-pointer outlives the call.
        let code = unsafe { real::mem_reserve(&raw mut start, size(mapped_bytes), size(UNIT), 0, 0) };
        if code != SUCCESS {
            pool.account.return_addresses(mapped_bytes);
            return Err(code);
        }
        Ok(Self { pool, start, mapped_bytes, pieces: Vec::new(), filled_bytes: 0 })
    }

    /// Maps a segment at the end of what is filled. Returns the bytes that the card had: fewer than asked means that it is full.
    fn add(&mut self, segment: Segment) -> Result<u64, Code> {
        let mut got = 0;
        while got < segment.bytes {
            let (piece, more) = match segment.place {
                Place::Local => (self.local(segment.bytes)?, false),
                Place::Donor(donor) => self.remote(donor, segment.bytes - got)?,
            };
            let Some(piece) = piece else { break };
            got += self.map(piece)?;
            if !more {
                break;
            }
        }
        Ok(got)
    }

    /// Maps a piece at the end of what is filled.
    fn map(&mut self, piece: Piece) -> Result<u64, Code> {
        let (handle, bytes, at) = (piece.handle, piece.bytes, self.start + piece.offset);
        // SAFETY: the range lies in our own reservation and is not mapped yet; the handle is ours and of this size.
        let code = unsafe { real::mem_map(at, size(bytes), 0, handle, 0) };
        if code != SUCCESS {
            let_go(self.pool, &piece);
            return Err(code);
        }
        self.pieces.push(piece);
        self.filled_bytes += bytes;
        Ok(bytes)
    }

    fn local(&self, bytes: u64) -> Result<Option<Piece>, Code> {
        if !self.pool.charge_local(bytes) {
            return Ok(None);
        }
        let (mut handle, prop) = (0, AllocationProp::LOCAL);
        // SAFETY: both pointers outlive the call.
        let code = unsafe { real::mem_create(&raw mut handle, size(bytes), &raw const prop, 0) };
        if code != SUCCESS {
            self.pool.return_local(bytes);
            return if code == OUT_OF_MEMORY { Ok(None) } else { Err(code) };
        }
        Ok(Some(Piece { handle, offset: self.filled_bytes, bytes, holding: Holding::Local }))
    }

    /// A chunk of a donor, and whether it has more.
    fn remote(&self, donor: usize, bytes: u64) -> Result<(Option<Piece>, bool), Code> {
        match borrow(self.pool, donor, bytes, Want::UpTo) {
            Ok(Borrowed { handle, bytes, lease, more }) => {
                let holding = Holding::Lease { lease, donor };
                Ok((Some(Piece { handle, offset: self.filled_bytes, bytes, holding }), more))
            }
            Err(OUT_OF_MEMORY) => Ok((None, false)),
            Err(code) => Err(code),
        }
    }

    /// Opens the whole range to the device in one call.
    fn grant(&self) -> Result<(), Code> {
        grant(self.start, self.mapped_bytes)
    }

    fn finish(mut self, bytes: u64, sharing: Sharing) -> Arc<Spilled> {
        let block = Spilled {
            start: self.start,
            bytes,
            mapped_bytes: self.mapped_bytes,
            pieces: std::mem::take(&mut self.pieces),
            context: real::current_context() as usize,
            id: self.pool.next_block_id(),
            sharing,
            made_at_ms: monotonic_ms(),
            hint: AtomicI32::new(scope().code()),
        };
        self.mapped_bytes = 0;
        Arc::new(block)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if self.mapped_bytes > 0 {
            dismantle(self.pool, self.start, self.mapped_bytes, &self.pieces);
        }
    }
}

/// Opens a wholly mapped range to the device.
fn grant(at: DevicePtr, bytes: u64) -> Result<(), Code> {
    let access = AccessDesc { location: Location::POOL, flags: ACCESS_READ_WRITE };
    // SAFETY: the range is wholly mapped; the descriptor outlives the call.
    succeeded(unsafe { real::mem_set_access(at, size(bytes), &raw const access, 1) })
}

fn succeeded(code: Code) -> Result<(), Code> {
    if code == SUCCESS { Ok(()) } else { Err(code) }
}

/// New memory for a part of a block, mapped elsewhere until it takes the part's place; dropping it undoes it.
pub(crate) struct Patch<'a>(Draft<'a>);

impl<'a> Patch<'a> {
    pub(crate) fn build(pool: &'a Pool, bytes: u64, segments: &[Segment]) -> Result<Self, Code> {
        let mut draft = Draft::reserve(pool, bytes)?;
        for &Segment { place, bytes } in segments {
            let mut rest = bytes;
            while rest > 0 {
                let got = draft.add(Segment { place, bytes: rest })?;
                if got == 0 {
                    return Err(OUT_OF_MEMORY);
                }
                rest -= got;
            }
        }
        draft.grant()?;
        Ok(Self(draft))
    }

    /// Copies the part's bytes here, and waits.
    pub(crate) fn copy_from(&self, at: DevicePtr) -> Result<(), Code> {
        // SAFETY: both ranges are mapped and as long as stated.
        succeeded(unsafe { real::copy(self.0.start, at, size(self.0.mapped_bytes)) })?;
        // SAFETY: no arguments.
        succeeded(unsafe { real::ctx_synchronize() })
    }

    /// Maps the new memory at the old part's addresses. The error says whether the old part could not be put back.
    pub(crate) fn take_place(mut self, start: DevicePtr, old: &Piece) -> Result<Vec<Piece>, bool> {
        let draft = &mut self.0;
        let at = start + old.offset;
        for piece in &draft.pieces {
            // SAFETY: exactly the range that was mapped for this piece.
            unsafe { real::mem_unmap(draft.start + piece.offset, size(piece.bytes)) };
        }
        // SAFETY: exactly the range that was mapped for the part, which nobody uses now.
        succeeded(unsafe { real::mem_unmap(at, size(old.bytes)) }).map_err(|_| false)?;
        for (index, piece) in draft.pieces.iter().enumerate() {
            let here = at + piece.offset;
            // SAFETY: the range is ours and unmapped; the handle is ours and of this size.
            if unsafe { real::mem_map(here, size(piece.bytes), 0, piece.handle, 0) } == SUCCESS {
                continue;
            }
            for done in &draft.pieces[..index] {
                // SAFETY: mapped in an earlier turn.
                unsafe { real::mem_unmap(at + done.offset, size(done.bytes)) };
            }
            // SAFETY: the range is ours and unmapped again; the old handle still has its bytes.
            let back = unsafe { real::mem_map(at, size(old.bytes), 0, old.handle, 0) };
            return Err(back != SUCCESS || grant(at, old.bytes).is_err());
        }
        if grant(at, old.bytes).is_err() {
            crate::log::warn("cuda: a moved part could not be opened to the device");
        }
        let mut pieces = std::mem::take(&mut draft.pieces);
        for piece in &mut pieces {
            piece.offset += old.offset;
        }
        Ok(pieces)
    }
}

/// What a chunk must be to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Any part of the bytes helps.
    UpTo,
    Exactly,
    /// All bytes, and within reach of network cards.
    ExactlyRdma,
}

/// A donor chunk, imported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Borrowed {
    pub(crate) handle: Handle,
    pub(crate) bytes: u64,
    pub(crate) lease: u64,
    /// The donor has more.
    pub(crate) more: bool,
}

/// Leases a chunk and imports it.
pub(crate) fn borrow(pool: &Pool, donor: usize, bytes: u64, want: Want) -> Result<Borrowed, Code> {
    let exact = want != Want::UpTo;
    let chunk = pool.link.lease(donor, bytes, exact, &pool.account).map_err(|error| match error {
        // To the tenant, a broker that is gone or refuses is memory that is not there.
        LinkError::Gone | LinkError::OutOfMemory | LinkError::Refused => OUT_OF_MEMORY,
    })?;
    if want == Want::ExactlyRdma && !chunk.rdma {
        pool.link.release(chunk.lease, &pool.account);
        return Err(OUT_OF_MEMORY);
    }
    match import(&chunk.descriptor) {
        Ok(handle) => Ok(Borrowed { handle, bytes: chunk.bytes, lease: chunk.lease, more: chunk.more }),
        Err(code) => {
            pool.link.release(chunk.lease, &pool.account);
            crate::log::warn(&format!("cuda: a chunk of donor {donor} cannot be imported: code {code}"));
            crate::reach::doubt(&pool.link);
            Err(code)
        }
    }
}

/// Ends this process's hold on a piece that is not mapped any more.
pub(crate) fn let_go(pool: &Pool, piece: &Piece) {
    // SAFETY: the handle is ours and released once.
    unsafe { real::mem_release(piece.handle) };
    match piece.holding {
        Holding::Lease { lease, .. } => pool.link.release(lease, &pool.account),
        Holding::Local => pool.return_local(piece.bytes),
        Holding::Foreign => {}
    }
}

fn dismantle(pool: &Pool, start: DevicePtr, mapped_bytes: u64, pieces: &[Piece]) {
    for piece in pieces {
        // SAFETY: exactly the range that was mapped for this piece.
        unsafe { real::mem_unmap(start + piece.offset, size(piece.bytes)) };
        let_go(pool, piece);
    }
    // SAFETY: exactly our reservation, now without mappings.
    unsafe { real::mem_unreserve(start, size(mapped_bytes)) };
    pool.account.return_addresses(mapped_bytes);
}

/// Maps another process's block out of its pieces' descriptors, which come one by one in order.
pub(crate) fn assemble(
    pool: &Pool,
    (number, bytes): (u64, u64),
    mut next: impl FnMut(usize) -> Result<(u64, OwnedFd), Code>,
) -> Result<Arc<Spilled>, Code> {
    let mapped_bytes = mappable(bytes).ok_or(INVALID_HANDLE)?;
    let mut draft = Draft::reserve(pool, mapped_bytes)?;
    while draft.filled_bytes < mapped_bytes {
        let (bytes, descriptor) = next(draft.pieces.len())?;
        // What the owner says of its pieces is not the kernel's word: nothing beyond the reservation is mapped.
        if bytes == 0 || !bytes.is_multiple_of(UNIT) || bytes > mapped_bytes - draft.filled_bytes {
            return Err(INVALID_HANDLE);
        }
        let handle = import(&descriptor)?;
        draft.map(Piece { handle, offset: draft.filled_bytes, bytes, holding: Holding::Foreign })?;
    }
    draft.grant()?;
    Ok(draft.finish(bytes, Sharing::Opened(number)))
}

fn import(descriptor: &OwnedFd) -> Result<Handle, Code> {
    let mut handle = 0;
    // SAFETY: the descriptor is open for the call; the out-pointer outlives it.
    let code = unsafe { real::mem_import(&raw mut handle, as_pointer(descriptor), HANDLE_POSIX_FD) };
    if code == SUCCESS { Ok(handle) } else { Err(code) }
}

/// Frees a block that has been taken out of the books. Work that uses it has ended.
pub(crate) fn tear_down(pool: &Pool, block: &Spilled) {
    if let Sharing::Own(number) = &block.sharing
        && number.load(Ordering::Acquire) != 0
    {
        pool.link.unshare(number.load(Ordering::Acquire));
    }
    dismantle(pool, block.start, block.mapped_bytes, &block.pieces);
}
