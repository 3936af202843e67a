//! Memory as NVML tells it: the pool's total, and what is free on the primary and its donors.
//!
//! One number everywhere: the total is the primary's and that of the donors which this process reaches, fixed for its life, which is
//! what the CUDA stand-in reports. The driver's own reserve is already outside that total, so it is not shown a second time.

use std::ffi::c_uint;
use std::sync::OnceLock;

use tarn_protocol::broker_wire::DonorFigures;

use crate::ffi::{Device, Memory, MemoryV2, Return, SUCCESS, real};
use crate::{devices, pages, seat};

/// What donors give by the first pages: a quota that changes later changes what is free and no total, as with CUDA.
static CAPACITY_BYTES: OnceLock<u64> = OnceLock::new();

/// Total and free bytes of the pool, given what the real library says of the primary.
fn pool_bytes(device: Device, real_free: u64) -> Option<(u64, u64)> {
    let pool = seat::pool()?;
    if devices::shows(pool, device) != Ok(true) {
        return None;
    }
    let pages = pages::get(pool);
    let primary = pool.primary_bytes().get();
    let local_free = match (pool.primary.cap_bytes, pages) {
        (Some(cap), Some(pages)) => cap.get().saturating_sub(pages.local_bytes()).min(real_free),
        (Some(cap), None) => cap.get().min(real_free),
        (None, _) => real_free.min(primary),
    };
    let donors: Vec<DonorFigures> = pages.map_or_else(Vec::new, |pages| {
        let reached = devices::reached(pool).iter();
        pages.donors().zip(reached).filter_map(|(donor, reached)| reached.then_some(donor)).collect()
    });
    let now = || donors.iter().map(|donor| donor.capacity_bytes).sum();
    let capacity = if pages.is_some() { *CAPACITY_BYTES.get_or_init(now) } else { 0 };
    // A dead broker leases nothing.
    let leasing = pages.is_some_and(pages::Pages::broker_lives);
    let donor_free = if leasing { donors.iter().map(|donor| donor.free_bytes()).sum() } else { 0 };
    let total = primary + capacity;
    Some((total, (local_free + donor_free).min(total)))
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo(device: Device, out: *mut Memory) -> Return {
    let status = real!("nvmlDeviceGetMemoryInfo" as fn(Device, *mut Memory), device, out);
    if status != SUCCESS || out.is_null() {
        return status;
    }
    // SAFETY: not NULL, and the real call has filled it.
    let memory = unsafe { &mut *out };
    if let Some((total, free)) = pool_bytes(device, memory.free) {
        *memory = Memory { total, free, used: total - free.min(total) };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Device, out: *mut MemoryV2) -> Return {
    // The real library checks `version`, so a wrong one fails here as it would without us.
    let status = real!("nvmlDeviceGetMemoryInfo_v2" as fn(Device, *mut MemoryV2), device, out);
    if status != SUCCESS || out.is_null() {
        return status;
    }
    // SAFETY: not NULL, and the real call has filled it.
    let memory = unsafe { &mut *out };
    if let Some((total, free)) = pool_bytes(device, memory.free) {
        let version: c_uint = memory.version;
        *memory = MemoryV2 { version, total, reserved: 0, free, used: total - free.min(total) };
    }
    SUCCESS
}
