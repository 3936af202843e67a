//! Who may reach a mapping. Access is granted per card; the process's own page protection follows the widest grant.

use crate::code::{Code, Outcome};
use crate::driver::{Driver, driver};
use crate::entry::{get, put};
use crate::memory::Place;
use crate::peer::grantable;
use crate::vmm::{LOCATION_DEVICE, Location, whole_mappings};

const NONE: i32 = 0;
const READ: i32 = 1;
const READ_WRITE: i32 = 3;

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Grant {
    location: Location,
    flags: i32,
}

fn set(address: u64, bytes: usize, grants: &[Grant]) -> Outcome {
    let driver = driver()?;
    let end = address.checked_add(bytes as u64).ok_or(Code::INVALID_VALUE)?;
    let places: Vec<(u64, Place)> = {
        let space = driver.space();
        let starts = whole_mappings(&space.mappings, address, end)?;
        starts.iter().filter_map(|start| Some((*start, space.mappings.get(start)?.memory.place))).collect()
    };
    // All is checked before anything changes.
    for grant in grants {
        check(driver, grant, &places)?;
    }
    for (start, _) in places {
        apply(driver, start, grants)?;
    }
    Ok(())
}

fn check(driver: &Driver, grant: &Grant, places: &[(u64, Place)]) -> Outcome {
    if !matches!(grant.flags, NONE | READ | READ_WRITE) {
        return Err(Code::INVALID_VALUE);
    }
    if grant.location.kind != LOCATION_DEVICE {
        return Ok(());
    }
    let from = driver.card(grant.location.id)?;
    for (_, place) in places {
        if let (Place::Card(to), true) = (place, grant.flags != NONE) {
            grantable(driver, from, *to)?;
        }
    }
    Ok(())
}

fn apply(driver: &Driver, start: u64, grants: &[Grant]) -> Outcome {
    let mut space = driver.space();
    let mapping = space.mappings.get_mut(&start).ok_or(Code::INVALID_VALUE)?;
    for grant in grants.iter().filter(|grant| grant.location.kind == LOCATION_DEVICE) {
        mapping.access[driver.card(grant.location.id)?] = u8::try_from(grant.flags).unwrap_or(0);
    }
    let widest = mapping.access.iter().copied().max().unwrap_or(0);
    let protection = match i32::from(widest) {
        NONE => libc::PROT_NONE,
        // The driver itself writes here when another card may; programs never write through these addresses.
        _ => libc::PROT_READ | libc::PROT_WRITE,
    };
    let length = usize::try_from(mapping.bytes).map_err(|_| Code::UNKNOWN)?;
    // SAFETY: the range is a mapping of ours.
    let code = unsafe { libc::mprotect(start as *mut libc::c_void, length, protection) };
    if code == 0 { Ok(()) } else { Err(Code::OPERATING_SYSTEM) }
}

driver_api! {
    ["cuMemSetAccess" 10020] fn cuMemSetAccess(address: u64, bytes: usize, grants: *const Grant, count: usize) {
        driver()?;
        if grants.is_null() || count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        set(address, bytes, std::slice::from_raw_parts(grants, count))
    }
    ["cuMemGetAccess" 10020] fn cuMemGetAccess(flags: *mut u64, location: *const Location, address: u64) {
        let driver = driver()?;
        let location = get(location)?;
        let space = driver.space();
        let (_, mapping) = space.mapping(address).ok_or(Code::INVALID_VALUE)?;
        let granted = if location.kind == LOCATION_DEVICE { mapping.access[driver.card(location.id)?] } else { 0 };
        put(flags, granted.into())
    }
}
