//! Devices: count, identity, totals. Ordinals are what the process sees; cards are what the host has.

use std::ffi::{CStr, c_char};

use crate::code::{Code, Outcome};
use crate::driver::driver;
use crate::entry::put;

/// Copies a text with its NUL into a caller's buffer, cut to its length.
pub(crate) unsafe fn put_text(to: *mut c_char, length: i32, text: &str) -> Outcome {
    let room =
        usize::try_from(length).ok().filter(|room| *room > 0 && !to.is_null()).ok_or(Code::INVALID_VALUE)?;
    let bytes = &text.as_bytes()[..text.len().min(room - 1)];
    // SAFETY: the caller vouches for `length` bytes at `to`, and no more are written.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr().cast(), to, bytes.len());
        to.add(bytes.len()).write(0);
    }
    Ok(())
}

driver_api! {
    ["cuDeviceGetCount" 2000] fn cuDeviceGetCount(count: *mut i32) {
        let driver = driver()?;
        put(count, i32::try_from(driver.visible.len()).map_err(|_| Code::UNKNOWN)?)
    }
    ["cuDeviceGet" 2000] fn cuDeviceGet(device: *mut i32, ordinal: i32) {
        driver()?.card(ordinal)?;
        put(device, ordinal)
    }
    ["cuDeviceGetName" 2000] fn cuDeviceGetName(name: *mut c_char, length: i32, device: i32) {
        let driver = driver()?;
        driver.card(device)?;
        put_text(name, length, &driver.machine().card.name)
    }
    ["cuDeviceGetUuid" 9020] fn cuDeviceGetUuid(uuid: *mut [u8; 16], device: i32) {
        let driver = driver()?;
        put(uuid, driver.machine().gpus[driver.card(device)?].uuid_bytes())
    }
    ["cuDeviceGetUuid" 11040] fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32) {
        let driver = driver()?;
        put(uuid, driver.machine().gpus[driver.card(device)?].uuid_bytes())
    }
    ["cuDeviceGetLuid" 10000] fn cuDeviceGetLuid(_luid: *mut c_char, _mask: *mut u32, device: i32) {
        driver()?.card(device)?;
        Err(Code::NOT_SUPPORTED)
    }
    ["cuDeviceTotalMem" 3020] fn cuDeviceTotalMem_v2(bytes: *mut usize, device: i32) {
        crate::entry::offer(bytes, 0);
        let driver = driver()?;
        let total = driver.machine().gpus[driver.card(device)?].memory_bytes;
        put(bytes, usize::try_from(total).map_err(|_| Code::UNKNOWN)?)
    }
    ["cuDeviceTotalMem" 2000] fn cuDeviceTotalMem(bytes: *mut u32, device: i32) {
        crate::entry::offer(bytes, 0);
        let driver = driver()?;
        let total = driver.machine().gpus[driver.card(device)?].memory_bytes;
        put(bytes, u32::try_from(total).unwrap_or(u32::MAX))
    }
    ["cuDeviceComputeCapability" 2000] fn cuDeviceComputeCapability(major: *mut i32, minor: *mut i32, device: i32) {
        let driver = driver()?;
        driver.card(device)?;
        let [high, low] = driver.machine().card.compute_capability;
        put(major, high.cast_signed())?;
        put(minor, low.cast_signed())
    }
    ["cuDeviceGetPCIBusId" 4010] fn cuDeviceGetPCIBusId(text: *mut c_char, length: i32, device: i32) {
        let driver = driver()?;
        let card = driver.card(device)?;
        put_text(text, length, &driver.machine().gpus[card].pci.to_uppercase())
    }
    ["cuDeviceGetByPCIBusId" 4010] fn cuDeviceGetByPCIBusId(device: *mut i32, text: *const c_char) {
        let driver = driver()?;
        if text.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let wanted = CStr::from_ptr(text).to_string_lossy().to_lowercase();
        let named = |card: &&usize| {
            let pci = &driver.machine().gpus[**card].pci;
            *pci == wanted || pci.ends_with(&wanted) && wanted.len() >= 5 || wanted.ends_with(pci.as_str())
        };
        let card = driver.visible.iter().find(named).ok_or(Code::INVALID_DEVICE)?;
        put(device, driver.ordinal(*card).ok_or(Code::INVALID_DEVICE)?)
    }
    ["cuDeviceGetExecAffinitySupport" 11040] fn cuDeviceGetExecAffinitySupport(
        supported: *mut i32, _kind: i32, device: i32,
    ) {
        driver()?.card(device)?;
        put(supported, 0)
    }
}
