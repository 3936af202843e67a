//! NVLink as seen from one card: its links in order, each to a peer, or all to the switches.

use tarn_sim::Host;
use tarn_sim::machine::LinkClass;

use crate::entry::{Return, put};
use crate::identity::{PciInfo, pci_info};
use crate::session::{DeviceHandle, device};

const LINKS_MAX: u32 = 18;
const NVSWITCH_IDS: u32 = 0x22a3_10de;

/// Where a link ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remote {
    Card(usize),
    Switch(u32),
}

fn remote(host: &Host, card: usize, link: u32) -> Result<Remote, Return> {
    if link >= LINKS_MAX {
        return Err(Return::INVALID_ARGUMENT);
    }
    let machine = host.machine();
    if machine.nvswitch {
        return Ok(Remote::Switch(link % 4));
    }
    let mut first = 0;
    for peer in 0..machine.gpus.len() {
        let count = machine.link(card, peer).nvlinks;
        if (first..first + count).contains(&link) {
            return Ok(Remote::Card(peer));
        }
        first += count;
    }
    Err(if first == 0 { Return::NOT_SUPPORTED } else { Return::INVALID_ARGUMENT })
}

fn active(host: &Host, card: usize, link: u32) -> Result<bool, Return> {
    let state = host.state().map_err(|_| Return::UNKNOWN)?;
    Ok(match remote(host, card, link)? {
        Remote::Card(peer) => state.links[card][peer].lost == 0,
        Remote::Switch(_) => true,
    })
}

nvml_api! {
    fn nvmlDeviceGetNvLinkState(handle: DeviceHandle, link: u32, enabled: *mut u32) {
        let device = device(handle)?;
        put(enabled, u32::from(active(&device.host, device.card, link)?))
    }
    fn nvmlDeviceGetNvLinkVersion(handle: DeviceHandle, link: u32, version: *mut u32) {
        let device = device(handle)?;
        remote(&device.host, device.card, link)?;
        put(version, device.host.machine().nvlink_version)
    }
    fn nvmlDeviceGetNvLinkCapability(handle: DeviceHandle, link: u32, capability: u32, answer: *mut u32) {
        let device = device(handle)?;
        remote(&device.host, device.card, link)?;
        let on = match capability {
            0 | 1 | 3 | 5 => true,
            2 => device.host.machine().links.iter().any(|link| link.class == LinkClass::Nvlink && link.atomics),
            4 => false,
            _ => return Err(Return::INVALID_ARGUMENT),
        };
        put(answer, u32::from(on))
    }
    [nvmlDeviceGetNvLinkRemotePciInfo] fn nvmlDeviceGetNvLinkRemotePciInfo_v2(
        handle: DeviceHandle, link: u32, pci: *mut PciInfo,
    ) {
        let device = device(handle)?;
        if !active(&device.host, device.card, link)? {
            return Err(Return::NOT_SUPPORTED);
        }
        let info = match remote(&device.host, device.card, link)? {
            Remote::Card(peer) => pci_info(&device.host, peer),
            Remote::Switch(at) => {
                let bus = 0xc4 + at;
                PciInfo::of(&format!("0000:{bus:02x}:00.0"), (0, bus, 0), NVSWITCH_IDS, NVSWITCH_IDS)
            }
        };
        put(pci, info)
    }
    fn nvmlDeviceGetNvLinkRemoteDeviceType(handle: DeviceHandle, link: u32, kind: *mut u32) {
        let device = device(handle)?;
        put(kind, match remote(&device.host, device.card, link)? { Remote::Card(_) => 0, Remote::Switch(_) => 2 })
    }
    fn nvmlDeviceGetNvLinkErrorCounter(handle: DeviceHandle, link: u32, _counter: u32, count: *mut u64) {
        let device = device(handle)?;
        remote(&device.host, device.card, link)?;
        put(count, 0)
    }
    fn nvmlDeviceResetNvLinkErrorCounters(handle: DeviceHandle, _link: u32) {
        device(handle)?;
        Err(Return::NO_PERMISSION)
    }
}
