//! Processes with a context on a card, and those that had one where the driver keeps account.

use tarn_sim::layout::Account;

use crate::entry::{Outcome, Return, put};
use crate::session::{DeviceHandle, device};

/// The first form.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ProcessV1 {
    pid: u32,
    used_bytes: u64,
}

/// The second and third form.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Process {
    pid: u32,
    used_bytes: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

/// `nvmlAccountingStats_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AccountingStats {
    gpu_percent: u32,
    memory_percent: u32,
    bytes_max: u64,
    time_ms: u64,
    started_us: u64,
    running: u32,
    reserved: [u32; 5],
}

/// Lives on a card, after dead processes were noticed; not supported where no account is kept.
fn accounts(handle: DeviceHandle) -> Result<Vec<Account>, Return> {
    let device = device(handle)?;
    let state = device.host.swept(None).map_err(|_| Return::UNKNOWN)?;
    if state.gpus[device.card].accounting == 0 {
        return Err(Return::NOT_SUPPORTED);
    }
    Ok(state.accounts_of(device.card))
}

const NO_INSTANCE: u32 = u32::MAX;

/// Fills a caller's array, or says how much room it needs.
unsafe fn fill<T>(
    handle: DeviceHandle,
    count: *mut u32,
    rows: *mut T,
    row: impl Fn(u32, u64) -> T,
) -> Outcome {
    let device = device(handle)?;
    if count.is_null() {
        return Err(Return::INVALID_ARGUMENT);
    }
    let processes = device.host.processes(device.card).map_err(|_| Return::UNKNOWN)?;
    // SAFETY: not NULL; the caller vouches for a count and for room for that many rows.
    unsafe {
        let room = *count as usize;
        put(count, u32::try_from(processes.len()).map_err(|_| Return::UNKNOWN)?)?;
        if processes.len() > room {
            return Err(Return::INSUFFICIENT_SIZE);
        }
        if rows.is_null() && !processes.is_empty() {
            return Err(Return::INVALID_ARGUMENT);
        }
        for (at, (pid, bytes)) in processes.into_iter().enumerate() {
            rows.add(at).write(row(pid, bytes));
        }
    }
    Ok(())
}

fn process(pid: u32, used_bytes: u64) -> Process {
    Process { pid, used_bytes, gpu_instance: NO_INSTANCE, compute_instance: NO_INSTANCE }
}

/// Nobody draws on these cards.
unsafe fn none(handle: DeviceHandle, count: *mut u32) -> Outcome {
    device(handle)?;
    // SAFETY: the caller vouches for the count.
    unsafe { put(count, 0) }
}

nvml_api! {
    fn nvmlDeviceGetComputeRunningProcesses(handle: DeviceHandle, count: *mut u32, rows: *mut ProcessV1) {
        fill(handle, count, rows, |pid, used_bytes| ProcessV1 { pid, used_bytes })
    }
    [nvmlDeviceGetComputeRunningProcesses_v2] fn nvmlDeviceGetComputeRunningProcesses_v3(
        handle: DeviceHandle, count: *mut u32, rows: *mut Process,
    ) {
        fill(handle, count, rows, process)
    }
    [nvmlDeviceGetGraphicsRunningProcesses_v2 nvmlDeviceGetGraphicsRunningProcesses
     nvmlDeviceGetMPSComputeRunningProcesses_v3 nvmlDeviceGetMPSComputeRunningProcesses_v2
     nvmlDeviceGetMPSComputeRunningProcesses]
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(handle: DeviceHandle, count: *mut u32, _rows: *mut Process) {
        none(handle, count)
    }
    fn nvmlDeviceGetAccountingMode(handle: DeviceHandle, mode: *mut u32) {
        let device = device(handle)?;
        put(mode, device.host.state().map_err(|_| Return::UNKNOWN)?.gpus[device.card].accounting)
    }
    fn nvmlDeviceGetAccountingPids(handle: DeviceHandle, count: *mut u32, pids: *mut u32) {
        let accounts = accounts(handle)?;
        if count.is_null() {
            return Err(Return::INVALID_ARGUMENT);
        }
        let room = *count as usize;
        put(count, u32::try_from(accounts.len()).map_err(|_| Return::UNKNOWN)?)?;
        if accounts.len() > room {
            return Err(Return::INSUFFICIENT_SIZE);
        }
        for (at, account) in accounts.iter().enumerate() {
            pids.add(at).write(account.pid);
        }
        Ok(())
    }
    fn nvmlDeviceGetAccountingBufferSize(handle: DeviceHandle, size: *mut u32) {
        device(handle)?;
        put(size, 4000)
    }
    fn nvmlDeviceGetAccountingStats(handle: DeviceHandle, pid: u32, stats: *mut AccountingStats) {
        let accounts = accounts(handle)?;
        let account = accounts.iter().rev().find(|account| account.pid == pid).ok_or(Return::NOT_FOUND)?;
        let time_ms = account.ended_us.saturating_sub(account.started_us) / 1000;
        put(stats, AccountingStats {
            gpu_percent: 35,
            memory_percent: 1,
            bytes_max: account.bytes_max,
            time_ms,
            started_us: account.started_us,
            running: account.running,
            reserved: [0; 5],
        })
    }
    fn nvmlDeviceGetProcessUtilization(
        handle: DeviceHandle, _samples: *mut std::ffi::c_void, count: *mut u32, _since: u64,
    ) {
        none(handle, count)?;
        Err(Return::NOT_FOUND)
    }
}
