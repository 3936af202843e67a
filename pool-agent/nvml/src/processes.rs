//! Process lists: what each process holds on the primary, plus what it spilled to donors.
//!
//! The driver counts an imported chunk to no process, not even when it lies on the card where the process runs, so adding the
//! spilled bytes counts nothing twice.
//!
//! On a slice of a shared card, processes of other tenants are left out: the broker's local page names this tenant's own.

use std::ffi::c_uint;

use crate::ffi::{Device, NOT_AVAILABLE, ProcessV1, ProcessV2, Return, SUCCESS, real};
use crate::{devices, pages, seat};

/// An entry of either shape.
trait Entry: Copy {
    fn pid(&self) -> u32;
    fn used_mut(&mut self) -> &mut u64;
}

impl Entry for ProcessV1 {
    fn pid(&self) -> u32 {
        self.pid
    }
    fn used_mut(&mut self) -> &mut u64 {
        &mut self.used_memory
    }
}

impl Entry for ProcessV2 {
    fn pid(&self) -> u32 {
        self.pid
    }
    fn used_mut(&mut self) -> &mut u64 {
        &mut self.used_memory
    }
}

/// Adds spilled bytes to the entries that the real library filled, and drops strangers on a shared card.
fn amend<E: Entry>(device: Device, count: *mut c_uint, list: *mut E, status: Return) -> Return {
    let Some(pool) = seat::pool() else { return status };
    if status != SUCCESS || count.is_null() || list.is_null() || devices::shows(pool, device) != Ok(true) {
        return status;
    }
    let Some(pages) = pages::get(pool) else { return status };
    // SAFETY: the real library filled `*count` entries of the caller's list.
    let entries = unsafe { std::slice::from_raw_parts_mut(list, *count as usize) };
    let shared = pool.primary.cap_bytes.is_some();
    let mut kept = 0;
    for at in 0..entries.len() {
        let mut entry = entries[at];
        let spilled = pages.spilled_by(entry.pid());
        if shared && spilled.is_none() {
            continue;
        }
        let used = entry.used_mut();
        if *used != NOT_AVAILABLE {
            *used = used.saturating_add(spilled.unwrap_or(0));
        }
        entries[kept] = entry;
        kept += 1;
    }
    // SAFETY: not NULL. `kept` is at most what `*count` was.
    unsafe { *count = c_uint::try_from(kept).unwrap_or(0) };
    SUCCESS
}

/// One exported process list per line: the symbol and its entry's shape.
macro_rules! process_lists {
    ($($symbol:ident $literal:literal $entry:ty;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $symbol(device: Device, count: *mut c_uint, list: *mut $entry) -> Return {
            let status = real!($literal as fn(Device, *mut c_uint, *mut $entry), device, count, list);
            amend(device, count, list, status)
        }
    )*};
}

process_lists! {
    nvmlDeviceGetComputeRunningProcesses "nvmlDeviceGetComputeRunningProcesses" ProcessV1;
    nvmlDeviceGetComputeRunningProcesses_v2 "nvmlDeviceGetComputeRunningProcesses_v2" ProcessV2;
    nvmlDeviceGetComputeRunningProcesses_v3 "nvmlDeviceGetComputeRunningProcesses_v3" ProcessV2;
    nvmlDeviceGetGraphicsRunningProcesses "nvmlDeviceGetGraphicsRunningProcesses" ProcessV1;
    nvmlDeviceGetGraphicsRunningProcesses_v2 "nvmlDeviceGetGraphicsRunningProcesses_v2" ProcessV2;
    nvmlDeviceGetGraphicsRunningProcesses_v3 "nvmlDeviceGetGraphicsRunningProcesses_v3" ProcessV2;
    nvmlDeviceGetMPSComputeRunningProcesses "nvmlDeviceGetMPSComputeRunningProcesses" ProcessV1;
    nvmlDeviceGetMPSComputeRunningProcesses_v2 "nvmlDeviceGetMPSComputeRunningProcesses_v2" ProcessV2;
    nvmlDeviceGetMPSComputeRunningProcesses_v3 "nvmlDeviceGetMPSComputeRunningProcesses_v3" ProcessV2;
}
