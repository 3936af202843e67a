//! One card by every route: index 0, its UUID, its PCI id, its serial. Donors are not found.

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::sync::OnceLock;

use tarn_protocol::ids::GpuUuid;
use tarn_protocol::pool_config::{Donor, PoolConfig};

use crate::ffi::{
    Device, ERROR_INSUFFICIENT_SIZE, ERROR_NOT_FOUND, Return, SUCCESS, UUID_BUFFER, UuidQuery, real,
};
use crate::seat;

/// The real handle of the pool's primary.
pub(crate) fn primary(pool: &PoolConfig) -> Result<Device, Return> {
    handle(&pool.primary.uuid)
}

/// Which donors this process reaches, in the order of the pool config, found once: a card whose device node is masked here does not
/// exist for the driver either, so the CUDA stand-in does not count it. Asked only once the real library is initialised.
pub(crate) fn reached(pool: &PoolConfig) -> &'static [bool] {
    static REACHED: OnceLock<Vec<bool>> = OnceLock::new();
    REACHED.get_or_init(|| {
        let reached = |donor: &Donor| {
            let found = handle(&donor.uuid).is_ok();
            if !found {
                seat::warn(&format!("nvml: donor {} is out of reach and not counted", donor.uuid));
            }
            found
        };
        pool.donors.iter().map(reached).collect()
    })
}

fn handle(uuid: &GpuUuid) -> Result<Device, Return> {
    let Ok(uuid) = std::ffi::CString::new(uuid.as_str()) else {
        return Err(ERROR_NOT_FOUND);
    };
    let mut device: Device = std::ptr::null_mut();
    let status =
        real!("nvmlDeviceGetHandleByUUID" as fn(*const c_char, *mut Device), uuid.as_ptr(), &raw mut device);
    if status == SUCCESS { Ok(device) } else { Err(status) }
}

/// Whether `device` is the primary, by UUID: handles are opaque and may differ between calls.
pub(crate) fn shows(pool: &PoolConfig, device: Device) -> Result<bool, Return> {
    let mut text = [0 as c_char; UUID_BUFFER];
    let size = c_uint::try_from(UUID_BUFFER).unwrap_or(0);
    let status =
        real!("nvmlDeviceGetUUID" as fn(Device, *mut c_char, c_uint), device, text.as_mut_ptr(), size);
    if status != SUCCESS {
        return Err(status);
    }
    // SAFETY: NVML wrote a NUL-terminated text within the buffer.
    let found = unsafe { CStr::from_ptr(text.as_ptr()) };
    Ok(found.to_bytes().eq_ignore_ascii_case(pool.primary.uuid.as_str().as_bytes()))
}

/// Lets a handle through only when it is the primary's; a donor was never there.
fn only_primary(status: Return, device: *mut Device) -> Return {
    let Some(pool) = seat::pool() else { return status };
    if status != SUCCESS || device.is_null() {
        return status;
    }
    // SAFETY: not NULL, and the real call has just written it.
    match shows(pool, unsafe { *device }) {
        Ok(true) => SUCCESS,
        Ok(false) => {
            // SAFETY: as above. A caller that ignores the status must not hold a donor's handle.
            unsafe { *device = std::ptr::null_mut() };
            ERROR_NOT_FOUND
        }
        Err(status) => status,
    }
}

fn count(out: *mut c_uint) -> Return {
    let Some(pool) = seat::pool() else {
        return real!("nvmlDeviceGetCount_v2" as fn(*mut c_uint), out);
    };
    if out.is_null() {
        return real!("nvmlDeviceGetCount_v2" as fn(*mut c_uint), out);
    }
    match primary(pool) {
        // SAFETY: not NULL.
        Ok(_) => unsafe { *out = 1 },
        // SAFETY: not NULL. The primary is lost or masked: no device, as the driver would say.
        Err(ERROR_NOT_FOUND) => unsafe { *out = 0 },
        Err(status) => return status,
    }
    SUCCESS
}

fn by_index(index: c_uint, out: *mut Device) -> Return {
    let Some(pool) = seat::pool() else {
        return real!("nvmlDeviceGetHandleByIndex_v2" as fn(c_uint, *mut Device), index, out);
    };
    if out.is_null() || index != 0 {
        // No card of that number: the real library says it, with what it says before it is initialised.
        return real!("nvmlDeviceGetHandleByIndex_v2" as fn(c_uint, *mut Device), c_uint::MAX, out);
    }
    match primary(pool) {
        Ok(device) => {
            // SAFETY: not NULL.
            unsafe { *out = device };
            SUCCESS
        }
        Err(status) => status,
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount_v2(out: *mut c_uint) -> Return {
    count(out)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetCount(out: *mut c_uint) -> Return {
    count(out)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut Device) -> Return {
    by_index(index, out)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByIndex(index: c_uint, out: *mut Device) -> Return {
    by_index(index, out)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, out: *mut Device) -> Return {
    only_primary(real!("nvmlDeviceGetHandleByUUID" as fn(*const c_char, *mut Device), uuid, out), out)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByUUIDV(uuid: *const UuidQuery, out: *mut Device) -> Return {
    only_primary(real!("nvmlDeviceGetHandleByUUIDV" as fn(*const UuidQuery, *mut Device), uuid, out), out)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleBySerial(serial: *const c_char, out: *mut Device) -> Return {
    only_primary(real!("nvmlDeviceGetHandleBySerial" as fn(*const c_char, *mut Device), serial, out), out)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(bus: *const c_char, out: *mut Device) -> Return {
    only_primary(real!("nvmlDeviceGetHandleByPciBusId_v2" as fn(*const c_char, *mut Device), bus, out), out)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetHandleByPciBusId(bus: *const c_char, out: *mut Device) -> Return {
    only_primary(real!("nvmlDeviceGetHandleByPciBusId" as fn(*const c_char, *mut Device), bus, out), out)
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetIndex(device: Device, out: *mut c_uint) -> Return {
    let status = real!("nvmlDeviceGetIndex" as fn(Device, *mut c_uint), device, out);
    if status == SUCCESS && seat::pool().is_some() && !out.is_null() {
        // SAFETY: not NULL. One card is visible, so its index is 0 as CUDA's ordinal is.
        unsafe { *out = 0 };
    }
    status
}

/// Keeps the primary alone in a device list that the real library filled, with NVML's two-call convention.
fn filter_list(count: *mut c_uint, list: *mut Device, status: Return, pool: &PoolConfig) -> Return {
    if count.is_null() || (status != SUCCESS && status != ERROR_INSUFFICIENT_SIZE) {
        return status;
    }
    if list.is_null() || status == ERROR_INSUFFICIENT_SIZE {
        // The caller asks how many: at most the one card it can see.
        // SAFETY: not NULL.
        unsafe { *count = (*count).min(1) };
        return status;
    }
    // SAFETY: the real library filled `*count` handles of the caller's list.
    let devices = unsafe { std::slice::from_raw_parts_mut(list, *count as usize) };
    let kept = devices.iter().copied().find(|device| shows(pool, *device) == Ok(true));
    // SAFETY: not NULL.
    unsafe { *count = c_uint::from(kept.is_some()) };
    if let (Some(device), Some(first)) = (kept, devices.first_mut()) {
        *first = device;
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetTopologyNearestGpus(
    device: Device,
    level: c_int,
    count: *mut c_uint,
    list: *mut Device,
) -> Return {
    let status = real!(
        "nvmlDeviceGetTopologyNearestGpus" as fn(Device, c_int, *mut c_uint, *mut Device),
        device,
        level,
        count,
        list
    );
    match seat::pool() {
        None => status,
        Some(pool) => filter_list(count, list, status, pool),
    }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlSystemGetTopologyGpuSet(cpu: c_uint, count: *mut c_uint, list: *mut Device) -> Return {
    let status =
        real!("nvmlSystemGetTopologyGpuSet" as fn(c_uint, *mut c_uint, *mut Device), cpu, count, list);
    match seat::pool() {
        None => status,
        Some(pool) => filter_list(count, list, status, pool),
    }
}
