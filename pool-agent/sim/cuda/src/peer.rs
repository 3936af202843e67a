//! Which card reaches which: capability answers, and the classic peer switch between contexts.
//!
//! Capability calls answer what the driver believes. Faults that only data shows (vanishing writes, missing atomics,
//! enabling that fails) do not change them.

use tarn_sim::machine::LinkClass;

use crate::code::{Code, Outcome};
use crate::context::{card_of, current, with_peers};
use crate::driver::{Driver, driver};
use crate::entry::put;

/// Whether the driver says that `from` can reach `to`.
pub(crate) fn capable(driver: &Driver, from: usize, to: usize) -> Result<bool, Code> {
    let link = driver.machine().link(from, to);
    Ok(link.class != LinkClass::None && driver.state()?.links[from][to].lost == 0)
}

/// Whether access from one card to another can really be granted.
pub(crate) fn grantable(driver: &Driver, from: usize, to: usize) -> Outcome {
    if from == to {
        return Ok(());
    }
    if !capable(driver, from, to)? || driver.state()?.links[from][to].enable_fails != 0 {
        return Err(Code::PEER_ACCESS_UNSUPPORTED);
    }
    Ok(())
}

driver_api! {
    ["cuDeviceCanAccessPeer" 4000] fn cuDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32) {
        let driver = driver()?;
        let (from, to) = (driver.card(device)?, driver.card(peer)?);
        put(can, i32::from(from != to && capable(driver, from, to)?))
    }
    ["cuDeviceGetP2PAttribute" 8000] fn cuDeviceGetP2PAttribute(
        value: *mut i32, attribute: i32, source: i32, target: i32,
    ) {
        let driver = driver()?;
        let (from, to) = (driver.card(source)?, driver.card(target)?);
        if from == to {
            return Err(Code::INVALID_DEVICE);
        }
        let able = capable(driver, from, to)?;
        let link = driver.machine().link(from, to);
        let answer = match attribute {
            1 => i32::from(link.class != LinkClass::Nvlink),
            2 | 4 => i32::from(able),
            3 => i32::from(able && link.atomics),
            _ => return Err(Code::INVALID_VALUE),
        };
        put(value, answer)
    }
    ["cuCtxEnablePeerAccess" 4000] fn cuCtxEnablePeerAccess(peer: usize, flags: u32) {
        let driver = driver()?;
        let here = current(driver)?;
        let to = card_of(driver, peer)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if to == here.card {
            return Err(Code::INVALID_DEVICE);
        }
        grantable(driver, here.card, to)?;
        with_peers(driver, here.id, |peers| {
            if peers.contains(&to) {
                return Err(Code::PEER_ACCESS_ALREADY_ENABLED);
            }
            peers.push(to);
            Ok(())
        })
    }
    ["cuCtxDisablePeerAccess" 4000] fn cuCtxDisablePeerAccess(peer: usize) {
        let driver = driver()?;
        let here = current(driver)?;
        let to = card_of(driver, peer)?;
        with_peers(driver, here.id, |peers| {
            let at = peers.iter().position(|enabled| *enabled == to).ok_or(Code::PEER_ACCESS_NOT_ENABLED)?;
            peers.remove(at);
            Ok(())
        })
    }
}
