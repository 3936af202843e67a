//! Memory: the ledger's bytes. The first form folds the driver's reserve into `used`, the second shows it apart.

use crate::entry::{Return, put};
use crate::session::{Device, DeviceHandle, device};

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MemoryV2 {
    version: u32,
    total: u64,
    reserved: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Bar1Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// The form's number in the top byte and its size below, as the header composes them.
const VERSION_2: u32 = 0x0200_0028;
const _: () = assert!(size_of::<MemoryV2>() == 40);
const IDLE_BAR1_BYTES: u64 = 1 << 20;

fn used_bytes(device: &Device) -> Result<u64, Return> {
    let state = device.host.swept(None).map_err(|_| Return::UNKNOWN)?;
    Ok(state.gpus[device.card].used_bytes)
}

nvml_api! {
    fn nvmlDeviceGetMemoryInfo(handle: DeviceHandle, memory: *mut Memory) {
        let device = device(handle)?;
        let (total, reserved) = (device.gpu().memory_bytes, device.gpu().reserved_bytes);
        let used = reserved + used_bytes(&device)?;
        put(memory, Memory { total, free: total.saturating_sub(used), used })
    }
    fn nvmlDeviceGetMemoryInfo_v2(handle: DeviceHandle, memory: *mut MemoryV2) {
        let device = device(handle)?;
        if memory.is_null() {
            return Err(Return::INVALID_ARGUMENT);
        }
        if (*memory).version != VERSION_2 {
            return Err(Return::ARGUMENT_VERSION_MISMATCH);
        }
        let (total, reserved) = (device.gpu().memory_bytes, device.gpu().reserved_bytes);
        let used = used_bytes(&device)?;
        let free = total.saturating_sub(used + reserved);
        put(memory, MemoryV2 { version: VERSION_2, total, reserved, free, used })
    }
    fn nvmlDeviceGetBAR1MemoryInfo(handle: DeviceHandle, memory: *mut Bar1Memory) {
        let total = device(handle)?.host.machine().card.bar1_mib << 20;
        put(memory, Bar1Memory { total, free: total - IDLE_BAR1_BYTES, used: IDLE_BAR1_BYTES })
    }
    fn nvmlDeviceGetMemoryBusWidth(handle: DeviceHandle, bits: *mut u32) {
        put(bits, device(handle)?.host.machine().card.memory_bus_bits)
    }
}
