//! Virtual memory: reservations, generic handles, mappings. The rules of the hardware driver that frameworks trip over are
//! kept: sizes are multiples of the granularity, the offset of a mapping is 0, whole mappings are unmapped.

use std::sync::Arc;

use crate::address_space::Mapping;
use crate::code::{Code, Outcome};
use crate::driver::{Driver, driver};
use crate::entry::{get, put};
use crate::memory::{Memory, Place};
use crate::native::fresh_id;

pub(crate) const GRANULARITY: u64 = 2 << 20;

pub(crate) const LOCATION_DEVICE: i32 = 1;
const LOCATION_HOST: i32 = 2;
const LOCATION_HOST_NUMA: i32 = 3;
const LOCATION_HOST_NUMA_CURRENT: i32 = 4;

const HANDLE_NONE: i32 = 0;
pub(crate) const HANDLE_POSIX_DESCRIPTOR: i32 = 1;

#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AllocationProperties {
    kind: i32,
    handle_types: i32,
    location: Location,
    win32: usize,
    compression: u8,
    rdma: u8,
    usage: u16,
    reserved: [u8; 4],
}

fn place(driver: &Driver, location: Location) -> Result<Place, Code> {
    match location.kind {
        LOCATION_DEVICE => driver.card(location.id).map(Place::Card),
        LOCATION_HOST | LOCATION_HOST_NUMA | LOCATION_HOST_NUMA_CURRENT => Ok(Place::Host),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn checked(properties: *const AllocationProperties) -> Result<(AllocationProperties, Place), Code> {
    let driver = driver()?;
    // SAFETY: NULL or a parameter block, as the interface asks.
    let properties = unsafe { get(properties)? };
    if properties.kind != 1 {
        return Err(Code::INVALID_VALUE);
    }
    if !matches!(properties.handle_types, HANDLE_NONE | HANDLE_POSIX_DESCRIPTOR) {
        return Err(Code::NOT_SUPPORTED);
    }
    let place = place(driver, properties.location)?;
    Ok((properties, place))
}

fn create(bytes: usize, properties: *const AllocationProperties, flags: u64) -> Result<u64, Code> {
    let driver = driver()?;
    let (properties, place) = checked(properties)?;
    let bytes = bytes as u64;
    if flags != 0 || bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
        return Err(Code::INVALID_VALUE);
    }
    let memory = match place {
        Place::Card(card) => Memory::create(driver, card, bytes, properties.handle_types, properties.rdma)?,
        Place::Host => Memory::create_on_host(driver, bytes, properties.handle_types)?,
    };
    Ok(enter_handle(driver, Arc::new(memory)))
}

/// Gives a memory its handle in this process.
pub(crate) fn enter_handle(driver: &Driver, memory: Arc<Memory>) -> u64 {
    let handle = 0x5a00_0000 + fresh_id() * 0x10;
    driver.handles().insert(handle, (memory, 1));
    handle
}

pub(crate) fn behind(driver: &Driver, handle: u64) -> Result<Arc<Memory>, Code> {
    driver.handles().get(&handle).map(|(memory, _)| Arc::clone(memory)).ok_or(Code::INVALID_VALUE)
}

fn reserve(bytes: usize, alignment: usize, wanted: u64, flags: u64) -> Result<u64, Code> {
    let driver = driver()?;
    let length = bytes as u64;
    let alignment = (alignment as u64).max(GRANULARITY);
    if flags != 0 || length == 0 || !length.is_multiple_of(GRANULARITY) || !alignment.is_power_of_two() {
        return Err(Code::INVALID_VALUE);
    }
    let span = length.checked_add(alignment).ok_or(Code::OUT_OF_MEMORY)?;
    let raw = map_nothing(wanted, span)?;
    let address = raw.next_multiple_of(alignment);
    unmap_host(raw, address - raw);
    unmap_host(address + length, raw + span - address - length);
    driver.space().reservations.insert(address, length);
    Ok(address)
}

fn map_nothing(wanted: u64, bytes: u64) -> Result<u64, Code> {
    let length = usize::try_from(bytes).map_err(|_| Code::OUT_OF_MEMORY)?;
    // SAFETY: a new private mapping without access; `wanted` is a hint and replaces nothing.
    let address = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(wanted as *mut libc::c_void, length, libc::PROT_NONE, flags, -1, 0)
    };
    if address == libc::MAP_FAILED { Err(Code::OUT_OF_MEMORY) } else { Ok(address as u64) }
}

fn unmap_host(address: u64, bytes: u64) {
    if bytes > 0 {
        // SAFETY: the range belongs to a reservation of ours that nothing uses any more.
        unsafe { libc::munmap(address as *mut libc::c_void, usize::try_from(bytes).unwrap_or(0)) };
    }
}

fn free_reservation(address: u64, bytes: usize) -> Outcome {
    let driver = driver()?;
    let bytes = bytes as u64;
    let mut space = driver.space();
    if space.reservations.get(&address) != Some(&bytes) {
        return Err(Code::INVALID_VALUE);
    }
    if space.mappings.range(address..address + bytes).next().is_some() {
        return Err(Code::INVALID_VALUE);
    }
    space.reservations.remove(&address);
    unmap_host(address, bytes);
    Ok(())
}

fn map(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> Outcome {
    let driver = driver()?;
    // Stricter than hardware, to show that nothing is mapped behind a capture's back.
    crate::capture::permit()?;
    let memory = behind(driver, handle)?;
    let length = bytes as u64;
    let aligned = length > 0 && address.is_multiple_of(GRANULARITY) && length.is_multiple_of(GRANULARITY);
    if offset != 0 {
        return Err(Code::NOT_SUPPORTED); // as driver 580 answers
    }
    if flags != 0 || !aligned || length > memory.bytes {
        return Err(Code::INVALID_VALUE);
    }
    let mut space = driver.space();
    let end = address.checked_add(length).ok_or(Code::INVALID_VALUE)?;
    let inside = space.reservation(address).is_some_and(|(start, reserved)| end <= start + reserved);
    let taken = space.mapping(address).is_some() || space.mappings.range(address..end).next().is_some();
    if !inside || taken {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the range lies in a reservation of ours without mapping, so replacing it takes nobody's memory.
    let mapped = unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        libc::mmap(address as *mut libc::c_void, bytes, libc::PROT_NONE, flags, memory.descriptor(), 0)
    };
    if mapped == libc::MAP_FAILED {
        return Err(Code::OUT_OF_MEMORY);
    }
    // SAFETY: the mapping just made. A forked child does not inherit a card's memory.
    unsafe { libc::madvise(mapped, bytes, libc::MADV_DONTFORK) };
    let access = [0; tarn_sim::layout::GPUS_MAX];
    space.mappings.insert(address, Mapping { bytes: length, memory, access, id: fresh_id() });
    Ok(())
}

fn unmap(address: u64, bytes: usize) -> Outcome {
    let driver = driver()?;
    let end = address.checked_add(bytes as u64).ok_or(Code::INVALID_VALUE)?;
    let mut dropped = Vec::new();
    {
        let mut space = driver.space();
        let starts = whole_mappings(&space.mappings, address, end)?;
        // Back to reserved addresses without access, in one step.
        // SAFETY: the range is covered by mappings of ours, which nothing may use any more.
        let reserved = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
            libc::mmap(address as *mut libc::c_void, bytes, libc::PROT_NONE, flags, -1, 0)
        };
        if reserved == libc::MAP_FAILED {
            return Err(Code::OPERATING_SYSTEM);
        }
        dropped.extend(starts.iter().filter_map(|start| space.mappings.remove(start)));
    }
    drop(dropped); // lets go of memory outside the lock
    Ok(())
}

/// The starts of mappings that cover a range exactly.
pub(crate) fn whole_mappings(
    mappings: &std::collections::BTreeMap<u64, Mapping>,
    address: u64,
    end: u64,
) -> Result<Vec<u64>, Code> {
    let mut at = address;
    let mut starts = Vec::new();
    while at < end {
        let mapping = mappings.get(&at).ok_or(Code::INVALID_VALUE)?;
        starts.push(at);
        at += mapping.bytes;
    }
    if at == end && !starts.is_empty() { Ok(starts) } else { Err(Code::INVALID_VALUE) }
}

fn release(handle: u64) -> Outcome {
    let driver = driver()?;
    let last = {
        let mut handles = driver.handles();
        let (_, count) = handles.get_mut(&handle).ok_or(Code::INVALID_VALUE)?;
        *count -= 1;
        if *count == 0 { handles.remove(&handle) } else { None }
    };
    drop(last); // lets go of memory outside the lock
    Ok(())
}

fn retain(address: u64) -> Result<u64, Code> {
    let driver = driver()?;
    let memory = {
        let space = driver.space();
        let (_, mapping) = space.mapping(address).ok_or(Code::INVALID_VALUE)?;
        Arc::clone(&mapping.memory)
    };
    let existing = {
        let mut handles = driver.handles();
        let same = handles.iter_mut().find(|(_, (known, _))| Arc::ptr_eq(known, &memory));
        same.map(|(handle, (_, count))| {
            *count += 1;
            *handle
        })
    };
    Ok(existing.unwrap_or_else(|| enter_handle(driver, memory)))
}

driver_api! {
    ["cuMemAddressReserve" 10020] fn cuMemAddressReserve(
        address: *mut u64, bytes: usize, alignment: usize, wanted: u64, flags: u64,
    ) {
        if address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        put(address, reserve(bytes, alignment, wanted, flags)?)
    }
    ["cuMemAddressFree" 10020] fn cuMemAddressFree(address: u64, bytes: usize) { free_reservation(address, bytes) }
    ["cuMemCreate" 10020] fn cuMemCreate(
        handle: *mut u64, bytes: usize, properties: *const AllocationProperties, flags: u64,
    ) {
        if handle.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        put(handle, create(bytes, properties, flags)?)
    }
    ["cuMemRelease" 10020] fn cuMemRelease(handle: u64) { release(handle) }
    ["cuMemMap" 10020] fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) {
        map(address, bytes, offset, handle, flags)
    }
    ["cuMemUnmap" 10020] fn cuMemUnmap(address: u64, bytes: usize) { unmap(address, bytes) }
    ["cuMemRetainAllocationHandle" 11000] fn cuMemRetainAllocationHandle(handle: *mut u64, address: u64) {
        if handle.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        put(handle, retain(address)?)
    }
    ["cuMemGetAllocationGranularity" 10020] fn cuMemGetAllocationGranularity(
        granularity: *mut usize, properties: *const AllocationProperties, option: i32,
    ) {
        checked(properties)?;
        if !matches!(option, 0 | 1) {
            return Err(Code::INVALID_VALUE);
        }
        put(granularity, usize::try_from(GRANULARITY).map_err(|_| Code::UNKNOWN)?)
    }
    ["cuMemGetAllocationPropertiesFromHandle" 10020] fn cuMemGetAllocationPropertiesFromHandle(
        properties: *mut AllocationProperties, handle: u64,
    ) {
        let driver = driver()?;
        let memory = behind(driver, handle)?;
        let location = match memory.place {
            Place::Card(card) => Location { kind: LOCATION_DEVICE, id: driver.ordinal(card).unwrap_or(0) },
            Place::Host => Location { kind: LOCATION_HOST_NUMA, id: 0 },
        };
        let (handle_types, rdma) = (memory.handle_types, memory.rdma);
        put(properties, AllocationProperties { kind: 1, handle_types, location, win32: 0, compression: 0, rdma,
            usage: 0, reserved: [0; 4] })
    }
}

#[cfg(test)]
mod tests {
    use cudarc::driver::sys;

    #[test]
    fn v14_parameter_blocks_have_the_headers_sizes() {
        assert_eq!(size_of::<super::AllocationProperties>(), size_of::<sys::CUmemAllocationProp>());
        assert_eq!(size_of::<crate::vmm_access::Grant>(), size_of::<sys::CUmemAccessDesc>());
        assert_eq!(size_of::<crate::memcpy::Copy2d>(), size_of::<sys::CUDA_MEMCPY2D>());
        assert_eq!(size_of::<crate::memcpy::Copy3d>(), size_of::<sys::CUDA_MEMCPY3D>());
        assert_eq!(size_of::<crate::memcpy::Copy3d>(), size_of::<sys::CUDA_MEMCPY3D_PEER>());
        assert_eq!(size_of::<crate::ipc::IpcHandle>(), size_of::<sys::CUipcMemHandle>());
    }
}
