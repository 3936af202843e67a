//! The functions of `include/tarn.h`: what a program that knows of its pool may ask.

use std::sync::atomic::Ordering;

use crate::abi::{Code, DevicePtr, INVALID_VALUE, NOT_SUPPORTED, SUCCESS};
use crate::blocks::{Holding, Sharing, Spilled};
use crate::hints::{self, Hint};
use crate::link::monotonic_ms;
use crate::pool::{self, Pool};
use crate::table::enter;
use crate::{capture, migrate};

const ABI_VERSION: i32 = 1;
const SCOPE: DevicePtr = 0;
const DONORS: usize = tarn_protocol::broker_wire::DONORS_MAX;

const SPILLED: u32 = 1;
const PINNED: u32 = 2;
const SHARED: u32 = 4;
const OPENED: u32 = 8;
const MAPPED: u32 = 16;

/// `tarn_residency_t`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Residency {
    size: u32,
    flags: u32,
    start: u64,
    bytes: u64,
    local_bytes: u64,
    donor_bytes: u64,
    host_bytes: u64,
    age_ms: u64,
    hint: u32,
    segments: u32,
    of_donor: [u64; DONORS],
}

#[unsafe(no_mangle)]
pub extern "C" fn tarn_abi_version() -> i32 {
    ABI_VERSION
}

#[unsafe(no_mangle)]
pub extern "C" fn tarn_hint(at: u64, placement: i32) -> Code {
    enter(|| {
        let Some(hint) = Hint::from_code(placement) else { return INVALID_VALUE };
        if at == SCOPE {
            hints::set_scope(hint);
            return SUCCESS;
        }
        let Some(pool) = pool::current() else { return NOT_SUPPORTED };
        let blocks = pool.blocks();
        match blocks.containing(at) {
            Some(block) => {
                block.hint.store(hint.code(), Ordering::Relaxed);
                SUCCESS
            }
            None if blocks.is_native(at) => NOT_SUPPORTED,
            None => INVALID_VALUE,
        }
    })
}

/// # Safety
/// `out` is null or valid for as many bytes as its own `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tarn_residency(at: u64, out: *mut Residency) -> Code {
    enter(|| {
        // SAFETY: the caller's promise: the size comes first.
        let size = if out.is_null() { 0 } else { unsafe { out.cast::<u32>().read_unaligned() } };
        if (size as usize) < size_of::<Residency>() {
            return INVALID_VALUE;
        }
        let Some(pool) = pool::current() else { return NOT_SUPPORTED };
        let found = if at == SCOPE { Ok(of_process(pool)) } else { of_block(pool, at) };
        match found {
            // SAFETY: the caller's room is at least as large as this structure.
            Ok(found) => unsafe { out.write_unaligned(Residency { size, ..found }) },
            Err(code) => return code,
        }
        SUCCESS
    })
}

/// The model is loaded: what this process allocates from now on may use the reserve, as after a pause.
#[unsafe(no_mangle)]
pub extern "C" fn tarn_loaded() -> Code {
    enter(|| {
        let Some(pool) = pool::current() else { return NOT_SUPPORTED };
        pool.growth().pause();
        SUCCESS
    })
}

fn of_block(pool: &Pool, at: DevicePtr) -> Result<Residency, Code> {
    let (found, native) = {
        let blocks = pool.blocks();
        (blocks.containing(at), blocks.native_bytes(at))
    };
    match (found, native) {
        (Some(block), _) => Ok(describe(&block, pool.config.host_place())),
        (None, Some(bytes)) => {
            Ok(Residency { start: at, bytes, local_bytes: bytes, segments: 1, ..Residency::default() })
        }
        (None, None) => of_mapping(pool, at).ok_or(INVALID_VALUE),
    }
}

/// A handle of the virtual memory interface, where it is mapped: all of it, if it lies on several cards.
fn of_mapping(pool: &Pool, at: DevicePtr) -> Option<Residency> {
    let spread = pool.compounds().around(at).map(|around| (around.start, around.bytes));
    let handles = pool.handles();
    let (start, bytes) = spread.or_else(|| handles.around(at).map(|(start, bytes, _)| (start, bytes)))?;
    let mut told = Residency { flags: MAPPED, start, bytes, ..Residency::default() };
    for (place, bytes) in handles.mappings(start, bytes) {
        let (_, _, memory) = handles.around(place)?;
        told.segments += 1;
        if memory.lease.is_none() {
            told.local_bytes += bytes;
            continue;
        }
        told.donor_bytes += bytes;
        if let Some(sum) = told.of_donor.get_mut(memory.donor) {
            *sum += bytes;
        }
    }
    Some(told)
}

/// `host` is the place of the host tier.
fn describe(block: &Spilled, host: Option<usize>) -> Residency {
    let mut told = Residency {
        flags: SPILLED,
        start: block.start,
        bytes: block.bytes,
        age_ms: monotonic_ms().saturating_sub(block.made_at_ms),
        hint: block.hint().code().cast_unsigned(),
        segments: u32::try_from(block.pieces.len()).unwrap_or(u32::MAX),
        ..Residency::default()
    };
    for piece in &block.pieces {
        match piece.holding {
            Holding::Local => told.local_bytes += piece.bytes,
            Holding::Lease { donor, .. } if host == Some(donor) => told.host_bytes += piece.bytes,
            Holding::Lease { donor, .. } => {
                told.donor_bytes += piece.bytes;
                if let Some(bytes) = told.of_donor.get_mut(donor) {
                    *bytes += piece.bytes;
                }
            }
            // Where another process's memory lies is known to that process.
            Holding::Foreign => {}
        }
    }
    if capture::pinned(block.id) {
        told.flags |= PINNED;
    }
    match &block.sharing {
        Sharing::Opened(_) => told.flags |= OPENED,
        Sharing::Own(number) if number.load(Ordering::Acquire) != 0 => told.flags |= SHARED,
        Sharing::Own(_) => {}
    }
    told
}

/// Everything that this process took, by its own books: handles of the virtual memory interface included in the sums.
fn of_process(pool: &Pool) -> Residency {
    let blocks = pool.blocks().all_spilled();
    let mut told = Residency {
        local_bytes: pool.account.local_bytes(),
        donor_bytes: pool.account.donor_bytes(),
        host_bytes: pool.account.host_bytes(),
        segments: u32::try_from(blocks.len()).unwrap_or(u32::MAX),
        ..Residency::default()
    };
    for one in blocks.iter().map(|block| describe(block, pool.config.host_place())) {
        told.age_ms = told.age_ms.max(one.age_ms);
        for (sum, bytes) in told.of_donor.iter_mut().zip(one.of_donor) {
            *sum += bytes;
        }
    }
    told.bytes = told.local_bytes + told.donor_bytes + told.host_bytes;
    told
}

/// # Safety
/// `starts` is null or valid for `room` numbers, `count` is null or valid for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tarn_blocks(starts: *mut u64, room: usize, count: *mut usize) -> Code {
    enter(|| {
        let Some(pool) = pool::current() else { return NOT_SUPPORTED };
        if count.is_null() || (starts.is_null() && room > 0) {
            return INVALID_VALUE;
        }
        let blocks = pool.blocks().all_spilled();
        // SAFETY: the caller's promise.
        unsafe {
            for (at, block) in blocks.iter().take(room).enumerate() {
                starts.add(at).write_unaligned(block.start);
            }
            count.write_unaligned(blocks.len());
        }
        SUCCESS
    })
}

/// # Safety
/// `moved` is null or valid for one number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tarn_migrate(at: u64, placement: i32, moved: *mut u64) -> Code {
    enter(|| {
        let outcome = match (Hint::from_code(placement), pool::current()) {
            (None, _) => Err(INVALID_VALUE),
            (_, None) => Err(NOT_SUPPORTED),
            (Some(hint), Some(pool)) => migrate::migrate(pool, at, hint),
        };
        if !moved.is_null() {
            // SAFETY: the caller's promise.
            unsafe { moved.write_unaligned(outcome.unwrap_or(0)) };
        }
        outcome.err().unwrap_or(SUCCESS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_structure_is_the_headers() {
        assert_eq!(size_of::<Residency>(), 2 * 4 + 6 * 8 + 2 * 4 + 15 * 8);
        let header = include_str!("../include/tarn.h");
        assert!(header.contains(&format!("#define TARN_ABI_VERSION {ABI_VERSION}\n")));
        assert!(header.contains(&format!("of_donor[{DONORS}]")));
        let flags = [
            ("SPILLED", SPILLED),
            ("PINNED", PINNED),
            ("SHARED", SHARED),
            ("OPENED", OPENED),
            ("MAPPED", MAPPED),
        ];
        for (name, bit) in flags {
            assert!(header.contains(&format!("TARN_{name} = {bit}")), "{name}");
        }
    }
}
