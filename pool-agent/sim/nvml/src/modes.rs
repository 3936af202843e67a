//! Modes and error counters: readable. Of the modes only the compute mode can be changed, as root does on hardware.

use crate::entry::{Outcome, Return, put};
use crate::session::{DeviceHandle, device};

fn ecc(handle: DeviceHandle) -> Result<bool, Return> {
    Ok(device(handle)?.host.machine().card.ecc)
}

fn refused(handle: DeviceHandle) -> Outcome {
    device(handle)?;
    Err(Return::NO_PERMISSION)
}

/// Counters exist on cards with ECC only.
unsafe fn ecc_count(handle: DeviceHandle, count: *mut u64) -> Outcome {
    if !ecc(handle)? {
        return Err(Return::NOT_SUPPORTED);
    }
    // SAFETY: the caller vouches for the count.
    unsafe { put(count, 0) }
}

nvml_api! {
    fn nvmlDeviceGetEccMode(handle: DeviceHandle, current: *mut u32, pending: *mut u32) {
        let on = ecc(handle)?;
        if !on {
            return Err(Return::NOT_SUPPORTED);
        }
        put(current, 1)?;
        put(pending, 1)
    }
    fn nvmlDeviceGetTotalEccErrors(handle: DeviceHandle, _kind: u32, _counter: u32, count: *mut u64) {
        ecc_count(handle, count)
    }
    fn nvmlDeviceGetMemoryErrorCounter(
        handle: DeviceHandle, _kind: u32, _counter: u32, _location: u32, count: *mut u64,
    ) {
        ecc_count(handle, count)
    }
    fn nvmlDeviceGetRetiredPages(handle: DeviceHandle, cause: u32, count: *mut u32, _addresses: *mut u64) {
        device(handle)?;
        if cause > 1 {
            return Err(Return::INVALID_ARGUMENT);
        }
        put(count, 0)
    }
    fn nvmlDeviceGetRetiredPages_v2(
        handle: DeviceHandle, cause: u32, count: *mut u32, _addresses: *mut u64, _times: *mut u64,
    ) {
        device(handle)?;
        if cause > 1 {
            return Err(Return::INVALID_ARGUMENT);
        }
        put(count, 0)
    }
    fn nvmlDeviceGetRetiredPagesPendingStatus(handle: DeviceHandle, pending: *mut u32) {
        device(handle)?;
        put(pending, 0)
    }
    fn nvmlDeviceGetRemappedRows(
        handle: DeviceHandle, corrected: *mut u32, uncorrected: *mut u32, pending: *mut u32, failed: *mut u32,
    ) {
        device(handle)?;
        put(corrected, 0)?;
        put(uncorrected, 0)?;
        put(pending, 0)?;
        put(failed, 0)
    }
    fn nvmlDeviceGetPersistenceMode(handle: DeviceHandle, mode: *mut u32) {
        device(handle)?;
        put(mode, 1)
    }
    fn nvmlDeviceGetComputeMode(handle: DeviceHandle, mode: *mut u32) {
        let device = device(handle)?;
        put(mode, device.host.state().map_err(|_| Return::UNKNOWN)?.gpus[device.card].compute_mode)
    }
    fn nvmlDeviceGetMigMode(handle: DeviceHandle, current: *mut u32, pending: *mut u32) {
        let device = device(handle)?;
        let card = &device.host.machine().card;
        if card.name.contains("GeForce") {
            return Err(Return::NOT_SUPPORTED);
        }
        put(current, u32::from(card.mig_enabled))?;
        put(pending, u32::from(card.mig_enabled))
    }
    fn nvmlDeviceGetMaxMigDeviceCount(handle: DeviceHandle, count: *mut u32) {
        device(handle)?;
        put(count, 0)
    }
    fn nvmlDeviceIsMigDeviceHandle(handle: DeviceHandle, is: *mut u32) {
        device(handle)?;
        put(is, 0)
    }
    fn nvmlDeviceGetMigDeviceHandleByIndex(handle: DeviceHandle, _index: u32, _device: *mut DeviceHandle) {
        device(handle)?;
        Err(Return::NOT_FOUND)
    }
    [nvmlDeviceGetDisplayMode] fn nvmlDeviceGetDisplayActive(handle: DeviceHandle, active: *mut u32) {
        put(active, u32::from(device(handle)?.host.machine().card.display_active))
    }
    fn nvmlDeviceGetVirtualizationMode(handle: DeviceHandle, mode: *mut u32) {
        device(handle)?;
        put(mode, 0)
    }
    fn nvmlDeviceSetPersistenceMode(handle: DeviceHandle, _mode: u32) { refused(handle) }
    fn nvmlDeviceSetComputeMode(handle: DeviceHandle, mode: u32) {
        let device = device(handle)?;
        if !matches!(mode, 0 | 2 | 3) {
            return Err(Return::INVALID_ARGUMENT);
        }
        device.host.state().map_err(|_| Return::UNKNOWN)?.gpus[device.card].compute_mode = mode;
        Ok(())
    }
    fn nvmlDeviceSetAccountingMode(handle: DeviceHandle, _mode: u32) { refused(handle) }
    fn nvmlDeviceSetPowerManagementLimit(handle: DeviceHandle, _milliwatts: u32) { refused(handle) }
    fn nvmlDeviceGetFieldValues(handle: DeviceHandle, _count: i32, _values: *mut std::ffi::c_void) {
        device(handle)?;
        Err(Return::NOT_SUPPORTED)
    }
}
