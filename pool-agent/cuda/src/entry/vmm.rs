//! Physical handles. One that some card has room for lies there whole; one that only several have room for is made of several (see
//! [`crate::compound`]). It is charged where its property says, not where the calling thread's context is (it may have none).
//!
//! PyTorch's expandable segments ask of every handle, wherever the card offers it, that network cards can reach it. The broker
//! creates chunks that way, so such requests spill. An importer is told nothing of it: driver 580 reports neither handle types nor
//! reach of an imported handle, the pointer attribute of what is mapped from it says "not capable", and it cannot be exported
//! again, except by the broker. The property here repeats what was asked for; the pointer attribute stays the driver's, so that
//! whoever registers memory with a network card takes a fallback.

use std::ffi::c_void;
use std::os::fd::IntoRawFd;

use crate::abi::{
    AllocationProp, Code, DevicePtr, HANDLE_POSIX_FD, Handle, INVALID_VALUE, LOCATION_DEVICE, Location,
    NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS,
};
use crate::compound::{Around, Part};
use crate::handles::{Memory, Released, Unmapped};
use crate::placement::{Place, Rules, UNIT, plan, whole};
use crate::pool::{self, Pool};
use crate::stitch::{self, Want, borrow};
use crate::{log, real};

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
        let code = placed(pool, (handle, bytes as u64), &wanted, rules, local);
        if code != OUT_OF_MEMORY {
            return code;
        }
        spread(pool, (handle, bytes as u64), &wanted, rules, |part, bytes| {
            local_part(pool, part, bytes, &wanted, || real(part, size(bytes), prop, flags))
        })
    }
}

pub(super) fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// One handle over several cards, where no card has room for all of it: a few large parts, whatever the policy.
unsafe fn spread(
    pool: &Pool,
    (handle, bytes): (*mut Handle, u64),
    wanted: &AllocationProp,
    rules: Rules,
    local: impl Fn(*mut Handle, u64) -> Code,
) -> Code {
    let mut cards = pool.cards();
    pool.settle(&mut cards);
    // What is mapped of a handle must look like device memory, and the host's does not.
    cards.host = None;
    let rules = Rules { placement: tarn_protocol::pool_config::Placement::LocalFirst, ..rules };
    let (mut parts, mut filled, mut looked_at): (Vec<Part>, u64, u64) = (Vec::new(), 0, 0);
    // Cards change between looking and taking: one that has less than it showed counts as full, and the rest is planned anew. When that
    // comes to nothing all cards are looked at again, as long as the last look has brought something.
    while filled < bytes {
        let next = plan(bytes - filled, bytes, &cards, rules).and_then(|planned| planned.first().copied());
        let Some(segment) = next else {
            if filled > looked_at {
                looked_at = filled;
                cards = pool.cards();
                cards.host = None;
                continue;
            }
            undo(pool, parts);
            return OUT_OF_MEMORY;
        };
        let mut part = 0;
        let code = match segment.place {
            Place::Local => local(&raw mut part, segment.bytes),
            Place::Donor(donor) => match borrow(pool, donor, segment.bytes, chunk_for(wanted)) {
                Ok(chunk) => {
                    part = chunk.handle;
                    pool.handles()
                        .created(part, remembered(wanted, segment.bytes, Some((chunk.lease, donor))));
                    SUCCESS
                }
                Err(code) => code,
            },
        };
        match code {
            SUCCESS => {
                parts.push(Part { handle: part, bytes: segment.bytes });
                filled += segment.bytes;
                cards.take(segment);
            }
            OUT_OF_MEMORY => stitch::shrink(pool, &mut cards, segment),
            code => {
                undo(pool, parts);
                return code;
            }
        }
    }
    if let [Part { handle: only, .. }] = *parts {
        // A card has room for all of it by now.
        // SAFETY: the caller checked that the out-pointer is not null.
        unsafe { *handle = only };
        return SUCCESS;
    }
    let made = pool.compounds().create(parts, wanted);
    // SAFETY: as above.
    unsafe { *handle = made };
    SUCCESS
}

fn undo(pool: &Pool, parts: Vec<Part>) {
    for Part { handle, .. } in parts {
        release_one(pool, handle);
    }
}

/// As [`local`], for a part.
pub(super) fn local_part(
    pool: &Pool,
    part: *mut Handle,
    bytes: u64,
    wanted: &AllocationProp,
    native: impl FnOnce() -> Code,
) -> Code {
    // SAFETY: `part` is a number of our own, which `native` writes.
    unsafe { local(pool, part, bytes, wanted, native) }
}

/// One reference of one driver handle goes.
pub(super) fn release_one(pool: &Pool, handle: Handle) -> Code {
    let releasing = pool.handles().releasing(handle);
    // SAFETY: the handle is one that the driver gave.
    let code = unsafe { real::mem_release(handle) };
    if let Some(released) = releasing {
        settle_release(pool, &released, code);
    }
    code
}

fn settle_release(pool: &Pool, released: &Released, code: Code) {
    if code != SUCCESS {
        pool.handles().release_refused(released);
        return;
    }
    let ended = pool.handles().release_done(released);
    if let Some(memory) = ended {
        end(pool, memory);
    }
}

/// Memory that RDMA may reach is asked for by every framework wherever the card offers it: a donor's chunk must keep the promise.
fn chunk_for(prop: &AllocationProp) -> Want {
    if prop.rdma_capable == 0 { Want::Exactly } else { Want::ExactlyRdma }
}

/// `lent`: the broker's number for a donor's chunk, and the donor.
fn remembered(wanted: &AllocationProp, bytes: u64, lent: Option<(u64, usize)>) -> Memory {
    let AllocationProp { handle_types, rdma_capable, .. } = *wanted;
    let (lease, donor) = (lent.map(|(lease, _)| lease), lent.map_or(0, |(_, donor)| donor));
    Memory { bytes, lease, donor, handle_types, rdma_capable, burst_bytes: 0 }
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
                    let memory = remembered(wanted, bytes, Some((chunk.lease, donor)));
                    pool.handles().created(chunk.handle, memory);
                    // Taken for a model's because many came: what it is for is seen when it is opened.
                    let may_come_near =
                        rules.watched && rules.large_bytes == 0 && bytes < pool.rules.large_bytes;
                    let number = if may_come_near {
                        pool.compounds().create(vec![Part { handle: chunk.handle, bytes }], wanted)
                    } else {
                        chunk.handle
                    };
                    // SAFETY: the caller checked that the out-pointer is not null.
                    unsafe { *handle = number };
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
    pool.growth().closed(memory.burst_bytes, memory.bytes);
    match memory.lease {
        Some(lease) => pool.link.release(lease, &pool.account),
        None => pool.return_local(memory.bytes),
    }
}

pub(crate) unsafe fn release(real: unsafe extern "C" fn(Handle) -> Code, handle: Handle) -> Code {
    // SAFETY: passed on.
    let native = || unsafe { real(handle) };
    let Some(pool) = pool::current() else { return native() };
    let compound = pool.compounds().release(handle);
    if let Some(parts) = compound {
        undo(pool, parts);
        return SUCCESS;
    }
    // The driver may give the same number out again the moment it is free: the books forget it first.
    let releasing = pool.handles().releasing(handle);
    let code = native();
    if let Some(released) = releasing {
        settle_release(pool, &released, code);
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
        let Some(pool) = pool::current() else { return real(handle, at) };
        let compound = pool.compounds().around(at as DevicePtr);
        let Some(Around { start, bytes, handle: number, .. }) = compound.filter(|_| !handle.is_null()) else {
            let code = real(handle, at);
            if code == SUCCESS {
                pool.handles().retained(at as DevicePtr, *handle);
            }
            return code;
        };
        let mut parts: Vec<Part> = Vec::new();
        let mapped = pool.handles().mappings(start, bytes);
        for (place, bytes) in mapped {
            let mut own = 0;
            let code = real(&raw mut own, std::ptr::without_provenance_mut(size(place)));
            if code != SUCCESS {
                undo(pool, parts);
                return code;
            }
            pool.handles().retained(place, own);
            parts.push(Part { handle: own, bytes });
        }
        pool.compounds().retained(number, parts);
        *handle = number;
        SUCCESS
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
    let compound = pool::current().and_then(|pool| Some((pool, pool.compounds().parts(handle)?.to_vec())));
    let mut driver_handle = handle;
    if let Some((pool, parts)) = compound {
        let whole =
            offset == 0 && flags == 0 && bytes as u64 == parts.iter().map(|part| part.bytes).sum::<u64>();
        match parts.as_slice() {
            // The driver's answer to what is odd stands.
            [only] if !whole => driver_handle = only.handle,
            parts if whole => return map_parts(pool, at, handle, parts),
            _ => {
                log::warn("cuda: a handle over several cards can only be mapped whole");
                return INVALID_VALUE;
            }
        }
    }
    // SAFETY: passed on.
    let code = unsafe { real(at, bytes, offset, driver_handle, flags) };
    if code == SUCCESS
        && let Some(pool) = pool::current()
    {
        pool.handles().mapped(at, bytes as u64, driver_handle);
    }
    code
}

/// Maps all parts of a handle, one behind the other, or none.
fn map_parts(pool: &Pool, at: DevicePtr, handle: Handle, parts: &[Part]) -> Code {
    let mut place = at;
    for (index, part) in parts.iter().enumerate() {
        // SAFETY: the driver checks the range; the handle is ours and of this size.
        let code = unsafe { real::mem_map(place, size(part.bytes), 0, part.handle, 0) };
        if code != SUCCESS {
            for before in parts[..index].iter().rev() {
                place -= before.bytes;
                unmap_one(pool, place, before.bytes);
            }
            return code;
        }
        pool.handles().mapped(place, part.bytes, part.handle);
        place += part.bytes;
    }
    pool.compounds().mapped(at, handle, pool.next_block_id());
    SUCCESS
}

/// Unmaps exactly one mapping of the driver's.
pub(super) fn unmap_one(pool: &Pool, at: DevicePtr, bytes: u64) -> Code {
    let unmapping = pool.handles().unmapping(at, bytes);
    // SAFETY: a range that was mapped so.
    let code = unsafe { real::mem_unmap(at, size(bytes)) };
    settle_unmapping(pool, unmapping, code);
    code
}

fn settle_unmapping(pool: &Pool, unmapping: Unmapped, code: Code) {
    if code != SUCCESS {
        pool.handles().unmap_refused(unmapping);
        return;
    }
    let ended = pool.handles().unmap_done(unmapping);
    for memory in ended {
        end(pool, memory);
    }
}

pub(crate) unsafe fn unmap(
    real: unsafe extern "C" fn(DevicePtr, usize) -> Code,
    at: DevicePtr,
    bytes: usize,
) -> Code {
    // SAFETY: passed on.
    let native = || unsafe { real(at, bytes) };
    let Some(pool) = pool::current() else { return native() };
    if pool.compounds().cuts(at, bytes as u64) {
        log::warn("cuda: a handle over several cards can only be unmapped whole");
        return INVALID_VALUE;
    }
    // A driver unmaps any number of whole mappings at once, so parts need no calls of their own, and it refuses what cuts another one.
    let compound = pool.compounds().unmapping(at, bytes as u64);
    let unmapping = pool.handles().unmapping(at, bytes as u64);
    let code = native();
    if code == SUCCESS {
        pool.compounds().unmap_done(&compound);
    } else {
        pool.compounds().unmap_refused(compound);
    }
    settle_unmapping(pool, unmapping, code);
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
    let mut handle = handle;
    if let Some(pool) = pool::current() {
        let mut compounds = pool.compounds();
        match (compounds.exporting(handle), compounds.parts(handle)) {
            (Some(part), _) => handle = part,
            // No descriptor stands for several allocations: callers take their fallback.
            (None, Some(_)) => return NOT_SUPPORTED,
            (None, None) => {}
        }
    }
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
    let compound = pool::current().and_then(|pool| pool.compounds().properties(handle));
    // SAFETY: passed on; after a success the driver has written the whole property.
    unsafe {
        if let Some(own) = compound.filter(|_| !prop.is_null()) {
            *prop = own;
            return SUCCESS;
        }
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
