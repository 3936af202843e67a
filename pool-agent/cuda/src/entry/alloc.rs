//! `cuMemAlloc` and its kin: native while the primary has room, a stitched range when it has not.

use crate::abi::{Code, DevicePtr, INVALID_VALUE, OUT_OF_MEMORY, SUCCESS};
use crate::blocks::{Found, Native};
use crate::link::monotonic_ms;
use crate::placement::{Cards, Place, Rules, plan};
use crate::pool::{self, Pool};
use crate::stitch::{self, mappable};
use crate::{capture, log, real};

/// Allocates `bytes`, by `native` where that is right. `native` writes the address through the tenant's own pointer.
///
/// Small requests go straight to the driver: no look at any card. Large ones are placed first, so that they leave what is kept for later.
pub(super) unsafe fn allocate(
    pool: &Pool,
    at: *mut DevicePtr,
    bytes: u64,
    native: impl FnOnce() -> Code,
) -> Code {
    let mut rules = pool.rules_for(bytes);
    if let Some(cards) = goes_out(pool, bytes, &mut rules) {
        // SAFETY: passed on.
        return unsafe { spill(pool, at, bytes, cards, rules) };
    }
    // SAFETY: read only once the driver has written through the pointer.
    let code = charged(pool, bytes, native, || unsafe { *at });
    if code != OUT_OF_MEMORY || !pool.frozen().spills() {
        return code;
    }
    // The driver's word is newer than ours: what is left of the primary is looked at again.
    // SAFETY: passed on.
    unsafe { spill(pool, at, bytes, pool.cards(), rules) }
}

/// The cards, if the policy does not leave the request whole on the primary. Small requests are not looked at, and where nothing may be
/// mapped the driver has the word. The rules learn what the request leaves on the primary.
pub(super) fn goes_out(pool: &Pool, bytes: u64, rules: &mut Rules) -> Option<Cards> {
    if bytes < rules.large_bytes || !pool.frozen().spills() || capture::forbids_mapping() {
        return None;
    }
    let cards = pool.cards();
    *rules = pool.keeping(*rules, bytes, &cards);
    let segments = mappable(bytes).and_then(|mapped| plan(mapped, bytes, &cards, *rules))?;
    segments.iter().any(|part| part.place != Place::Local).then_some(cards)
}

/// A native allocation under the cap. `address` tells where it is, once `native` has succeeded.
pub(super) fn charged(
    pool: &Pool,
    bytes: u64,
    native: impl FnOnce() -> Code,
    address: impl FnOnce() -> DevicePtr,
) -> Code {
    if !pool.charge_local(bytes) {
        return OUT_OF_MEMORY;
    }
    let code = native();
    if code == SUCCESS {
        let context = real::current_context() as usize;
        pool.blocks().add_native(address(), Native { bytes, context, source: 0 });
    } else {
        pool.return_local(bytes);
    }
    code
}

/// The driver zeroes its out-parameter when it refuses; so must a refusal that it never hears of.
///
/// # Safety
/// `at` is null or valid for a write.
pub(super) unsafe fn refused<T: Default>(code: Code, at: *mut T) -> Code {
    if code != SUCCESS && !at.is_null() {
        // SAFETY: the caller's promise.
        unsafe { *at = T::default() };
    }
    code
}

/// A stitched allocation.
pub(super) unsafe fn spill(pool: &Pool, at: *mut DevicePtr, bytes: u64, cards: Cards, rules: Rules) -> Code {
    if capture::forbids_mapping() {
        return OUT_OF_MEMORY;
    }
    match stitch::build(pool, bytes, cards, rules) {
        Ok(block) => {
            // SAFETY: the caller checked that the pointer is not null; it is the tenant's out-pointer.
            unsafe { *at = block.start };
            pool.blocks().add_spilled(block);
            SUCCESS
        }
        Err(code) => code,
    }
}

pub(crate) unsafe fn alloc(
    real: unsafe extern "C" fn(*mut DevicePtr, usize) -> Code,
    at: *mut DevicePtr,
    bytes: usize,
) -> Code {
    // SAFETY: passed on in every branch; `allocate` only sees pointers that are not null.
    unsafe {
        match pool::current() {
            Some(pool) if !at.is_null() && bytes > 0 => {
                refused(allocate(pool, at, bytes as u64, || real(at, bytes)), at)
            }
            _ => real(at, bytes),
        }
    }
}

/// The first version's pointers have 32 bits: never stitched, but charged.
pub(crate) unsafe fn alloc_v1(
    real: unsafe extern "C" fn(*mut u32, u32) -> Code,
    at: *mut u32,
    bytes: u32,
) -> Code {
    // SAFETY: passed on; after a success the driver has written through the pointer.
    unsafe {
        match pool::current() {
            Some(pool) if !at.is_null() => {
                refused(charged(pool, u64::from(bytes), || real(at, bytes), || u64::from(*at)), at)
            }
            _ => real(at, bytes),
        }
    }
}

/// The pitch is the driver's to choose: a one-row allocation tells it, then pitch × height is placed like any request.
pub(crate) unsafe fn pitch(
    real: unsafe extern "C" fn(*mut DevicePtr, *mut usize, usize, usize, u32) -> Code,
    at: *mut DevicePtr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: u32,
) -> Code {
    // SAFETY: passed on; `at` and `pitch` are checked before they are written here.
    unsafe {
        let Some(pool) = pool::current().filter(|_| !at.is_null() && !pitch.is_null()) else {
            return real(at, pitch, width, height, element);
        };
        let Some(row) = row_pitch(real, width, height, element) else {
            return real(at, pitch, width, height, element);
        };
        // The driver has its own words for a shape that fits no number.
        let Some(bytes) = row.checked_mul(height) else { return real(at, pitch, width, height, element) };
        let code = allocate(pool, at, bytes as u64, || real(at, pitch, width, height, element));
        *pitch = if code == SUCCESS { row } else { 0 };
        refused(code, at)
    }
}

/// The driver's pitch for rows of `width`; `None` when it refuses the shape (it then says why itself).
unsafe fn row_pitch(
    real: unsafe extern "C" fn(*mut DevicePtr, *mut usize, usize, usize, u32) -> Code,
    width: usize,
    height: usize,
    element: u32,
) -> Option<usize> {
    if height == 0 {
        return None;
    }
    let (mut probe, mut row) = (0, 0);
    // SAFETY: the out-pointers outlive the call; the probe is freed at once.
    unsafe {
        let code = real(&raw mut probe, &raw mut row, width, 1, element);
        if code == SUCCESS {
            real::mem_free(probe);
            return Some(row);
        }
        if code != OUT_OF_MEMORY {
            return None;
        }
    }
    // No room for one row on the primary: the alignment that every card of the last decade uses.
    width.checked_next_multiple_of(512)
}

pub(crate) unsafe fn pitch_v1(
    real: unsafe extern "C" fn(*mut u32, *mut u32, u32, u32, u32) -> Code,
    at: *mut u32,
    pitch: *mut u32,
    width: u32,
    height: u32,
    element: u32,
) -> Code {
    // SAFETY: passed on; after a success the driver has written through both pointers.
    unsafe {
        let Some(pool) = pool::current().filter(|_| !at.is_null() && !pitch.is_null()) else {
            return real(at, pitch, width, height, element);
        };
        let bytes = u64::from(width).saturating_mul(u64::from(height));
        refused(charged(pool, bytes, || real(at, pitch, width, height, element), || u64::from(*at)), at)
    }
}

/// Managed memory cannot be stitched: it stays the primary's, under the cap.
pub(crate) unsafe fn managed(
    real: unsafe extern "C" fn(*mut DevicePtr, usize, u32) -> Code,
    at: *mut DevicePtr,
    bytes: usize,
    flags: u32,
) -> Code {
    // SAFETY: passed on; `charged` reads the pointer only after a success of the driver.
    unsafe {
        match pool::current() {
            Some(pool) if !at.is_null() => {
                refused(charged(pool, bytes as u64, || real(at, bytes, flags), || *at), at)
            }
            _ => real(at, bytes, flags),
        }
    }
}

pub(crate) unsafe fn free_v1(real: unsafe extern "C" fn(u32) -> Code, at: u32) -> Code {
    // SAFETY: passed on.
    match pool::current() {
        Some(pool) => release(pool, u64::from(at), synchronize, || unsafe { real(at) }),
        None => unsafe { real(at) },
    }
}

pub(crate) unsafe fn free(real: unsafe extern "C" fn(DevicePtr) -> Code, at: DevicePtr) -> Code {
    // SAFETY: passed on.
    match pool::current() {
        Some(pool) if at != 0 => release(pool, at, synchronize, || unsafe { real(at) }),
        _ => unsafe { real(at) },
    }
}

/// What a native free does: wait for everything the context has running.
fn synchronize() -> Code {
    // SAFETY: no arguments.
    unsafe { real::ctx_synchronize() }
}

/// Frees what lies at `at`. The books forget it first: once the driver has freed an address, another thread may be given it.
pub(super) fn release(
    pool: &Pool,
    at: DevicePtr,
    wait: impl FnOnce() -> Code,
    native: impl FnOnce() -> Code,
) -> Code {
    let found = pool.blocks().take(at);
    match found {
        Found::Spilled(block) => {
            let code = wait();
            if code != SUCCESS {
                pool.blocks().add_spilled(block);
                return code;
            }
            let age_ms = monotonic_ms().saturating_sub(block.made_at_ms);
            pool.shrunk(block.bytes);
            pool.growth().lived(block.bytes, age_ms);
            stitch::tear_down(pool, &block);
            SUCCESS
        }
        Found::Native(block) => {
            let code = native();
            if code == SUCCESS {
                pool.return_local(block.bytes);
                pool.shrunk(block.bytes);
                if block.source != 0 {
                    pool.pooled.settle(pool, block.source);
                }
            } else {
                pool.blocks().add_native(at, block);
            }
            code
        }
        Found::Interior => {
            log::warn("cuda: an address inside a block was freed");
            INVALID_VALUE
        }
        Found::Unknown => native(),
    }
}
