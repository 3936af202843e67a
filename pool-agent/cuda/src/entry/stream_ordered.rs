//! Stream-ordered allocation: the driver's pool first, trimmed and tried again, then a stitched range made at once. A large request that
//! would eat the reserve is stitched at once, unless the pool has the bytes already.
//!
//! Under stream capture nothing may be mapped, so a spill there is a clean "out of memory". A spilled block that is freed in
//! stream order waits for the stream: its memory leaves only after the work that uses it.
//!
//! So a capture lives on what is left of the primary: a program that fills a pool through `cudaMallocAsync` and captures graphs
//! with allocations needs a reserve as large as those, else the capture is out of memory while donors are empty.

use crate::abi::{Code, DevicePtr, LOCATION_DEVICE, OUT_OF_MEMORY, Opaque, PoolPropsHead, SUCCESS};
use crate::blocks::Native;
use crate::entry::alloc::{goes_out, refused, release, spill};
use crate::pool::{self, Pool};
use crate::{pooled, real};

type AllocFn = unsafe extern "C" fn(*mut DevicePtr, usize, Opaque) -> Code;
type AllocFromFn = unsafe extern "C" fn(*mut DevicePtr, usize, Opaque, Opaque) -> Code;
type FreeFn = unsafe extern "C" fn(DevicePtr, Opaque) -> Code;

/// The forms of a call that mean "stream 0" differently.
#[derive(Clone, Copy)]
enum Flavour {
    Plain,
    PerThread,
}

fn capturing(stream: Opaque, flavour: Flavour) -> bool {
    let mut status = 0;
    // SAFETY: the out-pointer outlives the call; the stream is the tenant's.
    let code = unsafe {
        match flavour {
            Flavour::Plain => real::stream_capturing(stream, &raw mut status),
            Flavour::PerThread => real::stream_capturing_ptsz(stream, &raw mut status),
        }
    };
    // An error here means a capture that is broken or forbids the question: nothing may be mapped either.
    code != SUCCESS || status != 0
}

fn synchronize(stream: Opaque, flavour: Flavour) -> Code {
    // SAFETY: the stream is the tenant's.
    unsafe {
        match flavour {
            Flavour::Plain => real::stream_synchronize(stream),
            Flavour::PerThread => real::stream_synchronize_ptsz(stream),
        }
    }
}

/// The device's current pool, or null.
fn device_pool() -> Opaque {
    let mut pool = std::ptr::null_mut();
    // SAFETY: the out-pointer outlives the call.
    let code = unsafe { real::pool_current(&raw mut pool, 0) };
    if code == SUCCESS { pool } else { std::ptr::null_mut() }
}

/// Tries `native`, trims `source` and tries again, then spills.
unsafe fn ordered(
    pool: &Pool,
    at: *mut DevicePtr,
    bytes: usize,
    source: Opaque,
    flavour: (Opaque, Flavour),
    native: impl Fn() -> Code,
) -> Code {
    let (stream, flavour) = flavour;
    if source.is_null() || capturing(stream, flavour) {
        // A node of a graph: the driver sees to its memory when the graph runs. What the primary can never hold will not run.
        if bytes as u64 > pool.config.primary_bytes().get() {
            return OUT_OF_MEMORY;
        }
        pool.pooled.watch_graphs();
        return native();
    }
    let bytes = bytes as u64;
    let spare = pooled::spare(source);
    // What the pool has already is no growth.
    let mut rules = if spare < bytes { pool.rules_for(bytes) } else { pool.rules.sized(false) };
    // SAFETY: the caller checked `at`; the native call writes through it on success.
    unsafe {
        if let Some(cards) = goes_out(pool, bytes, &mut rules) {
            let code = spill(pool, at, bytes, cards, rules);
            if code != OUT_OF_MEMORY {
                return code;
            }
        }
        let first = pooled(pool, at, bytes, (source, spare), &native);
        if first != OUT_OF_MEMORY {
            return first;
        }
        // What the pool keeps for later is the primary's too.
        real::pool_trim(source, 0);
        let second = pooled(pool, at, bytes, (source, pooled::spare(source)), &native);
        if second != OUT_OF_MEMORY || !pool.frozen().spills() {
            return second;
        }
        spill(pool, at, bytes, pool.cards(), rules)
    }
}

/// An allocation out of a pool that has `spare` bytes: only what the pool has to reserve anew is charged before, what it really reserves after.
unsafe fn pooled(
    pool: &Pool,
    at: *mut DevicePtr,
    bytes: u64,
    (source, spare): (Opaque, u64),
    native: impl FnOnce() -> Code,
) -> Code {
    let anew = bytes.saturating_sub(spare);
    if !pool.charge_local(anew) {
        return OUT_OF_MEMORY;
    }
    let code = native();
    if code == SUCCESS {
        let context = real::current_context() as usize;
        let block = Native { bytes: 0, context, source: source as usize };
        // SAFETY: the driver succeeded, so it wrote through the pointer.
        pool.blocks().add_native(unsafe { *at }, block);
        pool.pooled.add(source, anew);
        pool.pooled.settle(pool, source as usize);
    } else {
        pool.return_local(anew);
    }
    code
}

unsafe fn allocate(
    real: AllocFn,
    at: *mut DevicePtr,
    bytes: usize,
    stream: Opaque,
    flavour: Flavour,
) -> Code {
    // SAFETY: passed on.
    unsafe {
        match pool::current() {
            Some(pool) if !at.is_null() && bytes > 0 => {
                let native = || real(at, bytes, stream);
                refused(ordered(pool, at, bytes, device_pool(), (stream, flavour), native), at)
            }
            _ => real(at, bytes, stream),
        }
    }
}

pub(crate) unsafe fn alloc(real: AllocFn, at: *mut DevicePtr, bytes: usize, stream: Opaque) -> Code {
    // SAFETY: passed on.
    unsafe { allocate(real, at, bytes, stream, Flavour::Plain) }
}

pub(crate) unsafe fn alloc_ptsz(real: AllocFn, at: *mut DevicePtr, bytes: usize, stream: Opaque) -> Code {
    // SAFETY: passed on.
    unsafe { allocate(real, at, bytes, stream, Flavour::PerThread) }
}

/// Only pools of the device spill: the driver's own and those that the tenant created there.
fn of_device(pool: &Pool, source: Opaque) -> bool {
    source == device_pool() || pool.memory_pools().contains(&(source as usize))
}

unsafe fn allocate_from(
    real: AllocFromFn,
    at: *mut DevicePtr,
    bytes: usize,
    source: Opaque,
    stream: Opaque,
    flavour: Flavour,
) -> Code {
    // SAFETY: passed on.
    unsafe {
        match pool::current() {
            Some(pool) if !at.is_null() && bytes > 0 && of_device(pool, source) => {
                let native = || real(at, bytes, source, stream);
                refused(ordered(pool, at, bytes, source, (stream, flavour), native), at)
            }
            _ => real(at, bytes, source, stream),
        }
    }
}

pub(crate) unsafe fn alloc_from(
    real: AllocFromFn,
    at: *mut DevicePtr,
    bytes: usize,
    source: Opaque,
    stream: Opaque,
) -> Code {
    // SAFETY: passed on.
    unsafe { allocate_from(real, at, bytes, source, stream, Flavour::Plain) }
}

pub(crate) unsafe fn alloc_from_ptsz(
    real: AllocFromFn,
    at: *mut DevicePtr,
    bytes: usize,
    source: Opaque,
    stream: Opaque,
) -> Code {
    // SAFETY: passed on.
    unsafe { allocate_from(real, at, bytes, source, stream, Flavour::PerThread) }
}

fn give_back(real: FreeFn, at: DevicePtr, stream: Opaque, flavour: Flavour) -> Code {
    // SAFETY: passed on.
    let native = || unsafe { real(at, stream) };
    match pool::current() {
        Some(pool) if at != 0 => release(pool, at, || synchronize(stream, flavour), native),
        _ => native(),
    }
}

pub(crate) unsafe fn free(real: FreeFn, at: DevicePtr, stream: Opaque) -> Code {
    give_back(real, at, stream, Flavour::Plain)
}

pub(crate) unsafe fn free_ptsz(real: FreeFn, at: DevicePtr, stream: Opaque) -> Code {
    give_back(real, at, stream, Flavour::PerThread)
}

pub(crate) unsafe fn pool_create(
    real: unsafe extern "C" fn(*mut Opaque, *const PoolPropsHead) -> Code,
    created: *mut Opaque,
    props: *const PoolPropsHead,
) -> Code {
    // SAFETY: passed on; after a success both pointers were valid.
    unsafe {
        let code = real(created, props);
        if code == SUCCESS
            && let Some(pool) = pool::current()
            && (*props).location.kind == LOCATION_DEVICE
        {
            pool.memory_pools().push(*created as usize);
        }
        code
    }
}

pub(crate) unsafe fn pool_destroy(real: unsafe extern "C" fn(Opaque) -> Code, source: Opaque) -> Code {
    // SAFETY: passed on.
    let code = unsafe { real(source) };
    if code == SUCCESS
        && let Some(pool) = pool::current()
    {
        pool.memory_pools().retain(|known| *known != source as usize);
        pool.pooled.settle_all(pool);
    }
    code
}

/// Trimmed bytes are free at once.
pub(crate) unsafe fn pool_trim(
    real: unsafe extern "C" fn(Opaque, usize) -> Code,
    source: Opaque,
    keep: usize,
) -> Code {
    // SAFETY: passed on.
    let code = unsafe { real(source, keep) };
    if code == SUCCESS
        && let Some(pool) = pool::current()
    {
        pool.pooled.settle_all(pool);
    }
    code
}
