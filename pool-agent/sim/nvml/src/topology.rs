//! How two cards of the host lie to each other, as the driver believes it.

use tarn_sim::machine::LinkClass;

use crate::entry::{Return, put};
use crate::session::{Device, DeviceHandle, device, handle_of, present};

const SINGLE_SWITCH: u32 = 10;
const NODE: u32 = 40;
const SYSTEM: u32 = 50;

fn common_ancestor(one: &Device, other: &Device) -> u32 {
    let (one, other) = (one.gpu(), other.gpu());
    match (one.switch == other.switch, one.numa == other.numa) {
        (true, _) => SINGLE_SWITCH,
        (false, true) => NODE,
        (false, false) => SYSTEM,
    }
}

const STATUS_OK: u32 = 0;
const STATUS_CHIPSET_NOT_SUPPORTED: u32 = 1;
const STATUS_NOT_SUPPORTED: u32 = 5;

nvml_api! {
    fn nvmlDeviceGetTopologyCommonAncestor(one: DeviceHandle, other: DeviceHandle, level: *mut u32) {
        let (one, other) = (device(one)?, device(other)?);
        put(level, if one.card == other.card { 0 } else { common_ancestor(&one, &other) })
    }
    fn nvmlDeviceGetTopologyNearestGpus(
        handle: DeviceHandle, level: u32, count: *mut u32, devices: *mut DeviceHandle,
    ) {
        let here = device(handle)?;
        if count.is_null() {
            return Err(Return::INVALID_ARGUMENT);
        }
        let mut near = Vec::new();
        for card in present(&here.host).into_iter().filter(|card| *card != here.card) {
            let there = Device { host: here.host.clone(), card };
            if common_ancestor(&here, &there) == level {
                near.push(handle_of(card));
            }
        }
        let room = *count as usize;
        put(count, u32::try_from(near.len()).map_err(|_| Return::UNKNOWN)?)?;
        if devices.is_null() {
            return Ok(());
        }
        for (at, handle) in near.into_iter().take(room).enumerate() {
            devices.add(at).write(handle);
        }
        Ok(())
    }
    fn nvmlDeviceGetP2PStatus(one: DeviceHandle, other: DeviceHandle, capability: u32, status: *mut u32) {
        let (one, other) = (device(one)?, device(other)?);
        let link = one.host.machine().link(one.card, other.card);
        let lost = one.host.state().map_err(|_| Return::UNKNOWN)?.links[one.card][other.card].lost != 0;
        let reaches = link.class != LinkClass::None && !lost;
        let (on, otherwise) = match capability {
            0 | 1 => (reaches, STATUS_CHIPSET_NOT_SUPPORTED),
            2 => (reaches && link.class == LinkClass::Nvlink, STATUS_NOT_SUPPORTED),
            3 => (reaches && link.atomics, STATUS_NOT_SUPPORTED),
            4 => (reaches && link.class == LinkClass::PcieP2p, STATUS_NOT_SUPPORTED),
            _ => return Err(Return::INVALID_ARGUMENT),
        };
        put(status, if on { STATUS_OK } else { otherwise })
    }
    fn nvmlDeviceOnSameBoard(one: DeviceHandle, other: DeviceHandle, same: *mut i32) {
        let (one, other) = (device(one)?, device(other)?);
        put(same, i32::from(one.card == other.card))
    }
}
