//! The bus between card and host.

use crate::entry::{Return, put};
use crate::session::{DeviceHandle, device};

/// Megabits per second and lane of a generation, rounded as NVML rounds: 2.5, 5, 8, 16, 32 GT/s.
fn speed_mbps(generation: u32) -> u32 {
    match generation {
        1 => 2_500,
        2 => 5_000,
        3 => 8_000,
        4 => 16_000,
        _ => 32_000,
    }
}

nvml_api! {
    [nvmlDeviceGetCurrPcieLinkGeneration nvmlDeviceGetGpuMaxPcieLinkGeneration]
    fn nvmlDeviceGetMaxPcieLinkGeneration(handle: DeviceHandle, generation: *mut u32) {
        put(generation, device(handle)?.host.machine().card.pcie_generation)
    }
    [nvmlDeviceGetCurrPcieLinkWidth] fn nvmlDeviceGetMaxPcieLinkWidth(handle: DeviceHandle, width: *mut u32) {
        put(width, device(handle)?.host.machine().card.pcie_width)
    }
    fn nvmlDeviceGetPcieLinkMaxSpeed(handle: DeviceHandle, speed: *mut u32) {
        let generation = device(handle)?.host.machine().card.pcie_generation;
        // NVML_PCIE_LINK_MAX_SPEED_*: 1 is 2500 MB/s, one step per generation.
        put(speed, generation.clamp(1, 6))
    }
    fn nvmlDeviceGetPcieSpeed(handle: DeviceHandle, speed: *mut u32) {
        put(speed, speed_mbps(device(handle)?.host.machine().card.pcie_generation))
    }
    fn nvmlDeviceGetPcieReplayCounter(handle: DeviceHandle, count: *mut u32) {
        device(handle)?;
        put(count, 0)
    }
    fn nvmlDeviceGetPcieThroughput(handle: DeviceHandle, counter: u32, kilobytes: *mut u32) {
        device(handle)?;
        if counter > 1 {
            return Err(Return::INVALID_ARGUMENT);
        }
        put(kilobytes, 0)
    }
    fn nvmlDeviceGetNumaNodeId(handle: DeviceHandle, node: *mut u32) {
        put(node, device(handle)?.gpu().numa)
    }
}
