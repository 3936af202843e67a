//! Page-locked host memory. Device addresses of it are the host addresses, as under unified addressing.

use std::ffi::c_void;

use crate::address_space::Pinned;
use crate::code::{Code, Outcome};
use crate::context::current;
use crate::driver::driver;
use crate::entry::put;

const FLAGS_KNOWN: u32 = 0xf;

fn allocate(bytes: usize, flags: u32) -> Result<*mut c_void, Code> {
    let driver = driver()?;
    current(driver)?;
    if bytes == 0 || flags & !FLAGS_KNOWN != 0 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: a new private mapping at an address the kernel picks.
    let address = unsafe {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        libc::mmap(std::ptr::null_mut(), bytes, access, kind, -1, 0)
    };
    if address == libc::MAP_FAILED {
        return Err(Code::OUT_OF_MEMORY);
    }
    driver.space().pinned.insert(address as u64, Pinned { bytes: bytes as u64, flags, registered: false });
    Ok(address)
}

fn free(address: *mut c_void) -> Outcome {
    let driver = driver()?;
    current(driver)?;
    let mut space = driver.space();
    let pinned = space.pinned.get(&(address as u64)).filter(|pinned| !pinned.registered).copied();
    let pinned = pinned.ok_or(Code::INVALID_VALUE)?;
    space.pinned.remove(&(address as u64));
    // SAFETY: the mapping was made by `allocate` and its entry is gone.
    unsafe { libc::munmap(address, usize::try_from(pinned.bytes).unwrap_or(0)) };
    Ok(())
}

fn register(address: *mut c_void, bytes: usize, flags: u32) -> Outcome {
    let driver = driver()?;
    current(driver)?;
    if address.is_null() || bytes == 0 || flags & !FLAGS_KNOWN != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let start = address as u64;
    let mut space = driver.space();
    let overlaps =
        space.pinned(start).is_some() || space.pinned.range(start..start + bytes as u64).next().is_some();
    if overlaps {
        return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
    }
    space.pinned.insert(start, Pinned { bytes: bytes as u64, flags, registered: true });
    Ok(())
}

driver_api! {
    ["cuMemHostAlloc" 2020] fn cuMemHostAlloc(address: *mut *mut c_void, bytes: usize, flags: u32) {
        if address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        put(address, allocate(bytes, flags)?)
    }
    ["cuMemAllocHost" 3020] fn cuMemAllocHost_v2(address: *mut *mut c_void, bytes: usize) {
        if address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        put(address, allocate(bytes, 0)?)
    }
    ["cuMemFreeHost" 2000] fn cuMemFreeHost(address: *mut c_void) { free(address) }
    ["cuMemHostRegister" 6050] fn cuMemHostRegister_v2(address: *mut c_void, bytes: usize, flags: u32) {
        register(address, bytes, flags)
    }
    ["cuMemHostRegister" 4000] fn cuMemHostRegister(address: *mut c_void, bytes: usize, flags: u32) {
        register(address, bytes, flags)
    }
    ["cuMemHostUnregister" 4000] fn cuMemHostUnregister(address: *mut c_void) {
        let driver = driver()?;
        current(driver)?;
        let mut space = driver.space();
        let known = space.pinned.get(&(address as u64)).is_some_and(|pinned| pinned.registered);
        if !known {
            return Err(Code::HOST_MEMORY_NOT_REGISTERED);
        }
        space.pinned.remove(&(address as u64));
        Ok(())
    }
    ["cuMemHostGetDevicePointer" 3020] fn cuMemHostGetDevicePointer_v2(
        device: *mut u64, address: *mut c_void, flags: u32,
    ) {
        let driver = driver()?;
        if flags != 0 || driver.space().pinned(address as u64).is_none() {
            return Err(Code::INVALID_VALUE);
        }
        put(device, address as u64)
    }
    ["cuMemHostGetFlags" 2030] fn cuMemHostGetFlags(flags: *mut u32, address: *mut c_void) {
        let driver = driver()?;
        let known = driver.space().pinned(address as u64).map(|(_, pinned)| pinned.flags);
        put(flags, known.ok_or(Code::INVALID_VALUE)?)
    }
}
