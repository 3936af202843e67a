//! Temperature, power, clocks, load. A card with processes reads as working, one without as idle.

use crate::entry::{Outcome, Return, put};
use crate::session::{Device, DeviceHandle, device};

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Utilization {
    gpu: u32,
    memory: u32,
}

fn busy(device: &Device) -> Result<bool, Return> {
    Ok(!device.host.processes(device.card).map_err(|_| Return::UNKNOWN)?.is_empty())
}

fn temperature_c(device: &Device) -> Result<u32, Return> {
    let set = device.host.state().map_err(|_| Return::UNKNOWN)?.gpus[device.card].temperature_c;
    let idle = device.host.machine().card.idle_temperature_c;
    match set.checked_sub(1) {
        Some(celsius) => Ok(celsius),
        None => Ok(idle + if busy(device)? { 18 } else { 0 }),
    }
}

fn clock_mhz(device: &Device, kind: u32) -> Result<u32, Return> {
    let card = &device.host.machine().card;
    match kind {
        0 | 1 => Ok(card.clock_mhz),
        2 => Ok(card.memory_clock_mhz),
        3 => Ok(card.clock_mhz * 4 / 5),
        _ => Err(Return::INVALID_ARGUMENT),
    }
}

/// What a card of this kind simply has not.
fn unsupported(handle: DeviceHandle) -> Outcome {
    device(handle)?;
    Err(Return::NOT_SUPPORTED)
}

nvml_api! {
    fn nvmlDeviceGetTemperature(handle: DeviceHandle, sensor: u32, celsius: *mut u32) {
        let device = device(handle)?;
        if sensor != 0 {
            return Err(Return::INVALID_ARGUMENT);
        }
        put(celsius, temperature_c(&device)?)
    }
    fn nvmlDeviceGetTemperatureThreshold(handle: DeviceHandle, kind: u32, celsius: *mut u32) {
        device(handle)?;
        put(celsius, match kind { 0 | 2 => 95, 1 => 92, 3 => 89, _ => return Err(Return::NOT_SUPPORTED) })
    }
    fn nvmlDeviceGetPowerUsage(handle: DeviceHandle, milliwatts: *mut u32) {
        let device = device(handle)?;
        let card = &device.host.machine().card;
        put(milliwatts, if busy(&device)? { card.power_limit_mw / 3 } else { card.idle_power_mw })
    }
    [nvmlDeviceGetEnforcedPowerLimit nvmlDeviceGetPowerManagementDefaultLimit]
    fn nvmlDeviceGetPowerManagementLimit(handle: DeviceHandle, milliwatts: *mut u32) {
        put(milliwatts, device(handle)?.host.machine().card.power_limit_mw)
    }
    fn nvmlDeviceGetPowerManagementLimitConstraints(handle: DeviceHandle, least: *mut u32, most: *mut u32) {
        let device = device(handle)?;
        let limit = device.host.machine().card.power_limit_mw;
        put(least, limit / 3)?;
        put(most, limit)
    }
    fn nvmlDeviceGetTotalEnergyConsumption(handle: DeviceHandle, _millijoules: *mut u64) { unsupported(handle) }
    fn nvmlDeviceGetUtilizationRates(handle: DeviceHandle, utilization: *mut Utilization) {
        let device = device(handle)?;
        let used = device.host.state().map_err(|_| Return::UNKNOWN)?.gpus[device.card].used_bytes;
        let share = u32::try_from(used.saturating_mul(100) / device.gpu().memory_bytes.max(1)).unwrap_or(100);
        let forced = device.host.state().map_err(|_| Return::UNKNOWN)?.gpus[device.card].load_percent;
        let gpu = match forced.checked_sub(1) {
            Some(percent) => percent,
            None if busy(&device)? => 35,
            None => 0,
        };
        put(utilization, Utilization { gpu, memory: if gpu == 0 { 0 } else { share.min(40) } })
    }
    fn nvmlDeviceGetEncoderUtilization(handle: DeviceHandle, percent: *mut u32, period: *mut u32) {
        device(handle)?;
        put(percent, 0)?;
        put(period, 1_000_000)
    }
    fn nvmlDeviceGetDecoderUtilization(handle: DeviceHandle, percent: *mut u32, period: *mut u32) {
        device(handle)?;
        put(percent, 0)?;
        put(period, 1_000_000)
    }
    [nvmlDeviceGetMaxClockInfo nvmlDeviceGetApplicationsClock nvmlDeviceGetDefaultApplicationsClock
     nvmlDeviceGetMaxCustomerBoostClock]
    fn nvmlDeviceGetClockInfo(handle: DeviceHandle, kind: u32, megahertz: *mut u32) {
        put(megahertz, clock_mhz(&device(handle)?, kind)?)
    }
    fn nvmlDeviceGetClock(handle: DeviceHandle, kind: u32, _which: u32, megahertz: *mut u32) {
        put(megahertz, clock_mhz(&device(handle)?, kind)?)
    }
    [nvmlDeviceGetPowerState] fn nvmlDeviceGetPerformanceState(handle: DeviceHandle, state: *mut u32) {
        let device = device(handle)?;
        put(state, if busy(&device)? { 0 } else { 8 })
    }
    fn nvmlDeviceGetFanSpeed(handle: DeviceHandle, _percent: *mut u32) { unsupported(handle) }
    fn nvmlDeviceGetFanSpeed_v2(handle: DeviceHandle, _fan: u32, _percent: *mut u32) { unsupported(handle) }
    fn nvmlDeviceGetNumFans(handle: DeviceHandle, fans: *mut u32) {
        device(handle)?;
        put(fans, 0)
    }
    [nvmlDeviceGetCurrentClocksEventReasons nvmlDeviceGetSupportedClocksThrottleReasons]
    fn nvmlDeviceGetCurrentClocksThrottleReasons(handle: DeviceHandle, reasons: *mut u64) {
        device(handle)?;
        put(reasons, 0)
    }
}
