//! The device as the tenant sees it: which card it is, and one number for its memory.

use crate::abi::{Code, Device, SUCCESS};
use crate::{pool, real, seat, visibility};

/// Saturated to what the first version's 32 bits can say.
fn narrow(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn wide(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The driver reads which devices are visible in its first call: by then the primary must be the only one.
pub(crate) unsafe fn init(real: unsafe extern "C" fn(u32) -> Code, flags: u32) -> Code {
    if let Some(config) = seat::config() {
        visibility::impose(&config.primary.uuid);
    }
    // SAFETY: passed on.
    unsafe { real(flags) }
}

pub(crate) unsafe fn total(
    real: unsafe extern "C" fn(*mut usize, Device) -> Code,
    bytes: *mut usize,
    device: Device,
) -> Code {
    // SAFETY: passed on.
    let code = unsafe { real(bytes, device) };
    if code == SUCCESS
        && !bytes.is_null()
        && let Some(pool) = pool::current()
    {
        // SAFETY: the driver just wrote through the pointer.
        unsafe { *bytes = wide(pool.frozen().total_bytes) };
    }
    code
}

pub(crate) unsafe fn total_v1(
    real: unsafe extern "C" fn(*mut u32, Device) -> Code,
    bytes: *mut u32,
    device: Device,
) -> Code {
    // SAFETY: passed on.
    let code = unsafe { real(bytes, device) };
    if code == SUCCESS
        && !bytes.is_null()
        && let Some(pool) = pool::current()
    {
        // SAFETY: the driver just wrote through the pointer.
        unsafe { *bytes = narrow(wide(pool.frozen().total_bytes)) };
    }
    code
}

/// Free and total of the pool, off the shared page: the broker is asked only after this process gave memory back. `driver_free`:
/// what the driver says is free on the primary.
fn figures(pool: &pool::Pool, driver_free: u64) -> (usize, usize) {
    let total = pool.frozen().total_bytes;
    pool.pooled.settle_all(pool);
    pool.link.settle_own(&pool.account);
    let donors: u64 = pool.donors_free().iter().map(|(_, free)| free).sum();
    let free = pool.local_allowance(driver_free).saturating_add(donors).min(total);
    (wide(free), wide(total))
}

pub(crate) unsafe fn info(
    real: unsafe extern "C" fn(*mut usize, *mut usize) -> Code,
    free: *mut usize,
    total: *mut usize,
) -> Code {
    // SAFETY: passed on.
    let code = unsafe { real(free, total) };
    let Some(pool) = pool::current().filter(|_| code == SUCCESS) else { return code };
    // SAFETY: the driver just accepted the pointers, so each is null or was written through.
    unsafe {
        let driver_free = if free.is_null() { 0 } else { *free as u64 };
        let (pool_free, pool_total) = figures(pool, driver_free);
        if !free.is_null() {
            *free = pool_free;
        }
        if !total.is_null() {
            *total = pool_total;
        }
    }
    code
}

pub(crate) unsafe fn info_v1(
    real: unsafe extern "C" fn(*mut u32, *mut u32) -> Code,
    free: *mut u32,
    total: *mut u32,
) -> Code {
    // SAFETY: passed on.
    let code = unsafe { real(free, total) };
    let Some(pool) = pool::current().filter(|_| code == SUCCESS) else { return code };
    let (mut driver_free, mut driver_total) = (0usize, 0usize);
    // SAFETY: the out-pointers outlive the call. The 32-bit figure says nothing on a modern card.
    if unsafe { real::mem_info(&raw mut driver_free, &raw mut driver_total) } != SUCCESS {
        return code;
    }
    let (pool_free, pool_total) = figures(pool, driver_free as u64);
    // SAFETY: the driver just accepted the pointers, so each is null or was written through.
    unsafe {
        if !free.is_null() {
            *free = narrow(pool_free);
        }
        if !total.is_null() {
            *total = narrow(pool_total);
        }
    }
    code
}
