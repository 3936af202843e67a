//! Physical handles: one handle cannot be split, so it lies on one card, and is charged where its property says, not where the
//! calling thread's context is (it may have none).
//!
//! PyTorch's expandable segments ask of every handle, wherever the card offers it, that network cards can reach it. The broker
//! creates chunks that way, so such requests spill. An importer is told nothing of it: driver 580 reports neither handle types nor
//! reach of an imported handle, the pointer attribute of what is mapped from it says "not capable", and it cannot be exported
//! again, except by the broker. The property here repeats what was asked for; the pointer attribute stays the driver's, so that whoever registers memory
//! with a network card takes a fallback.

use std::ffi::c_void;
use std::os::fd::IntoRawFd;

use crate::abi::{
    AllocationProp, Code, DevicePtr, HANDLE_POSIX_FD, Handle, INVALID_VALUE, LOCATION_DEVICE, Location,
    OUT_OF_MEMORY, SUCCESS,
};
use crate::handles::Memory;
use crate::log;
use crate::placement::{Place, Rules, UNIT, whole};
use crate::pool::{self, Pool};
use crate::stitch::{Want, borrow};

type CreateFn = unsafe extern "C" fn(*mut Handle, usize, *const AllocationProp, u64) -> Code;

/// Whether the property asks for memory of the pool. Host memory is the driver's business.
fn of_pool(prop: &AllocationProp) -> bool {
    prop.location.kind == LOCATION_DEVICE && prop.location.id == 0
}

/// Whether a donor chunk can keep every promise of the property.
fn can_spill(prop: &AllocationProp, bytes: u64, flags: u64) -> bool {
    prop.handle_types & !HANDLE_POSIX_FD == 0
        && prop.compression == 0
        && prop.usage == 0
        && flags == 0
        && bytes.is_multiple_of(UNIT)
}

pub(crate) unsafe fn create(
    real: CreateFn,
    handle: *mut Handle,
    bytes: usize,
    prop: *const AllocationProp,
    flags: u64,
) -> Code {
    // SAFETY: the property is read only when not null; everything is passed on.
    unsafe {
        let Some(pool) = pool::current().filter(|_| !handle.is_null() && !prop.is_null() && bytes > 0) else {
            return real(handle, bytes, prop, flags);
        };
        let wanted = *prop;
        if !of_pool(&wanted) {
            return real(handle, bytes, prop, flags);
        }
        let local = || local(pool, handle, bytes as u64, &wanted, || real(handle, bytes, prop, flags));
        if !can_spill(&wanted, bytes as u64, flags) || pool.frozen().donors.is_empty() {
            return local();
        }
        let rules = pool.rules_for(bytes as u64);
        if (bytes as u64) < rules.large_bytes {
            let code = local();
            if code != OUT_OF_MEMORY {
                return code;
            }
        }
        placed(pool, (handle, bytes as u64), &wanted, rules, local)
    }
}

/// Memory that RDMA may reach is asked for by every framework wherever the card offers it: a donor's chunk must keep the promise.
fn chunk_for(prop: &AllocationProp) -> Want {
    if prop.rdma_capable == 0 { Want::Exactly } else { Want::ExactlyRdma }
}

fn remembered(wanted: &AllocationProp, bytes: u64, lease: Option<u64>) -> Memory {
    Memory { bytes, lease, handle_types: wanted.handle_types, rdma_capable: wanted.rdma_capable }
}

/// Tries the cards in the order of the policy.
unsafe fn placed(
    pool: &Pool,
    (handle, bytes): (*mut Handle, u64),
    wanted: &AllocationProp,
    rules: Rules,
    local: impl Fn() -> Code,
) -> Code {
    let mut cards = pool.cards();
    let rules = pool.keeping(rules, bytes, &cards);
    if cards.donors.iter().all(|(_, free)| *free < bytes) {
        pool.settle(&mut cards);
    }
    let mut code = OUT_OF_MEMORY;
    for place in whole(bytes, &cards, rules, pool.next_turn()) {
        code = match place {
            Place::Local => local(),
            Place::Donor(donor) => match borrow(pool, donor, bytes, chunk_for(wanted)) {
                Ok(chunk) => {
                    let memory = remembered(wanted, bytes, Some(chunk.lease));
                    pool.handles().created(chunk.handle, memory);
                    // SAFETY: the caller checked that the out-pointer is not null.
                    unsafe { *handle = chunk.handle };
                    SUCCESS
                }
                Err(code) => code,
            },
        };
        if code != OUT_OF_MEMORY {
            return code;
        }
    }
    code
}

unsafe fn local(
    pool: &Pool,
    handle: *mut Handle,
    bytes: u64,
    wanted: &AllocationProp,
    native: impl FnOnce() -> Code,
) -> Code {
    if !pool.charge_local(bytes) {
        return OUT_OF_MEMORY;
    }
    let code = native();
    if code == SUCCESS {
        let memory = remembered(wanted, bytes, None);
        // SAFETY: the driver succeeded, so it wrote the handle through this pointer.
        pool.handles().created(unsafe { *handle }, memory);
    } else {
        pool.return_local(bytes);
    }
    code
}

/// The charge of memory that nothing in this process holds any more.
fn end(pool: &Pool, memory: Memory) {
    pool.shrunk(memory.bytes);
    match memory.lease {
        Some(lease) => pool.link.release(lease, &pool.account),
        None => pool.return_local(memory.bytes),
    }
}

pub(crate) unsafe fn release(real: unsafe extern "C" fn(Handle) -> Code, handle: Handle) -> Code {
    // SAFETY: passed on.
    let native = || unsafe { real(handle) };
    let Some(pool) = pool::current() else { return native() };
    // The driver may give the same number out again the moment it is free: the books forget it first.
    let releasing = pool.handles().releasing(handle);
    let code = native();
    let Some(released) = releasing else { return code };
    if code == SUCCESS {
        let ended = pool.handles().release_done(&released);
        if let Some(memory) = ended {
            end(pool, memory);
        }
    } else {
        pool.handles().release_refused(&released);
    }
    code
}

pub(crate) unsafe fn retain(
    real: unsafe extern "C" fn(*mut Handle, *mut c_void) -> Code,
    handle: *mut Handle,
    at: *mut c_void,
) -> Code {
    // SAFETY: passed on; after a success the driver has written the handle.
    unsafe {
        let code = real(handle, at);
        if code == SUCCESS
            && let Some(pool) = pool::current()
        {
            pool.handles().retained(at as DevicePtr, *handle);
        }
        code
    }
}

pub(crate) unsafe fn map(
    real: unsafe extern "C" fn(DevicePtr, usize, usize, Handle, u64) -> Code,
    at: DevicePtr,
    bytes: usize,
    offset: usize,
    handle: Handle,
    flags: u64,
) -> Code {
    // SAFETY: passed on.
    let code = unsafe { real(at, bytes, offset, handle, flags) };
    if code == SUCCESS
        && let Some(pool) = pool::current()
    {
        pool.handles().mapped(at, bytes as u64, handle);
    }
    code
}

pub(crate) unsafe fn unmap(
    real: unsafe extern "C" fn(DevicePtr, usize) -> Code,
    at: DevicePtr,
    bytes: usize,
) -> Code {
    // SAFETY: passed on.
    let native = || unsafe { real(at, bytes) };
    let Some(pool) = pool::current() else { return native() };
    let unmapping = pool.handles().unmapping(at, bytes as u64);
    let code = native();
    if code == SUCCESS {
        let ended = pool.handles().unmap_done(unmapping);
        for memory in ended {
            end(pool, memory);
        }
    } else {
        pool.handles().unmap_refused(unmapping);
    }
    code
}

/// Drivers do not export what was imported, so the broker exports the lease again. The owner stays charged; the importer pays nothing.
pub(crate) unsafe fn export(
    real: unsafe extern "C" fn(*mut c_void, Handle, i32, u64) -> Code,
    shareable: *mut c_void,
    handle: Handle,
    kind: i32,
    flags: u64,
) -> Code {
    let known = pool::current().and_then(|pool| Some((pool, pool.handles().of(handle)?)));
    let lease = known.and_then(|(pool, memory)| Some((pool, memory, memory.lease?)));
    let Some((pool, memory, lease)) = lease.filter(|_| !shareable.is_null() && flags == 0) else {
        // SAFETY: passed on.
        return unsafe { real(shareable, handle, kind, flags) };
    };
    if kind != HANDLE_POSIX_FD || memory.handle_types & kind == 0 {
        return INVALID_VALUE;
    }
    match pool.link.export(lease, &pool.account) {
        Ok(descriptor) => {
            // SAFETY: for POSIX descriptors the caller gives room for one int, whose file is its own from here on.
            unsafe { shareable.cast::<i32>().write(descriptor.into_raw_fd()) };
            SUCCESS
        }
        Err(error) => {
            log::warn(&format!("cuda: a donor chunk cannot be exported: {error}"));
            OUT_OF_MEMORY
        }
    }
}

/// A donor chunk says that it is the pool's, as the tenant asked for it.
pub(crate) unsafe fn properties(
    real: unsafe extern "C" fn(*mut AllocationProp, Handle) -> Code,
    prop: *mut AllocationProp,
    handle: Handle,
) -> Code {
    // SAFETY: passed on; after a success the driver has written the whole property.
    unsafe {
        let code = real(prop, handle);
        if code == SUCCESS
            && !prop.is_null()
            && let Some(pool) = pool::current()
        {
            let known = pool.handles().of(handle);
            if let Some(memory) = known.filter(|memory| memory.lease.is_some()) {
                (*prop).location = Location::POOL;
                (*prop).handle_types = memory.handle_types;
                (*prop).rdma_capable = memory.rdma_capable;
            }
        }
        code
    }
}
