//! `cuGetProcAddress`: the real driver is asked first, with version and flags, and its answer replaced by address.
//!
//! A name means different functions to different versions and stream flags; only the returned address says which. The map is
//! learnt once: for each row of the table, what the driver exports under its symbol and what it resolves its name to. An address
//! of a covered name that no row knows is a newer form: it passes, is counted, and the log says so.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::OnceLock;

use crate::abi::{Code, PROC_PER_THREAD, SUCCESS};
use crate::real::{self};
use crate::table::{ROWS, Row};
use crate::{log, seat};

type Addresses = HashMap<usize, Vec<&'static Row>>;

fn learn(addresses: &mut Addresses, address: *mut c_void, row: &'static Row) {
    if !address.is_null() {
        let rows = addresses.entry(address as usize).or_default();
        if !rows.iter().any(|known| std::ptr::eq(*known, row)) {
            rows.push(row);
        }
    }
}

/// What the real resolver gives for a row's name, version and flavour.
fn resolved(row: &Row) -> *mut c_void {
    let Ok(name) = CString::new(row.base) else { return std::ptr::null_mut() };
    let flags = if row.per_thread { PROC_PER_THREAD } else { 0 };
    let (mut address, mut found) = (std::ptr::null_mut(), 0);
    // SAFETY: a NUL-terminated name, and out-pointers that outlive the calls.
    let code = unsafe {
        match real::proc_address(name.as_ptr(), &raw mut address, row.since, flags, &raw mut found) {
            crate::abi::NOT_FOUND if found == 0 => {
                real::proc_address_v1(name.as_ptr(), &raw mut address, row.since, flags)
            }
            code => code,
        }
    };
    if code == SUCCESS { address } else { std::ptr::null_mut() }
}

fn addresses() -> &'static Addresses {
    static ADDRESSES: OnceLock<Addresses> = OnceLock::new();
    ADDRESSES.get_or_init(|| {
        let mut addresses = Addresses::new();
        for row in ROWS {
            if let Ok(symbol) = CString::new(row.symbol) {
                learn(&mut addresses, seat::real_symbol(&symbol), row);
            }
            learn(&mut addresses, resolved(row), row);
        }
        addresses
    })
}

/// The stand-in for what the driver answered, or the answer itself.
fn substitute(name: &str, address: *mut c_void) -> *mut c_void {
    if let Some(rows) = addresses().get(&(address as usize)) {
        // Functions with equal bodies may share an address: then the name decides among them.
        let row = rows.iter().find(|row| row.base == name).or(rows.first());
        return row.map_or(address, |row| row.stand_in.cast_mut());
    }
    if ROWS.iter().any(|row| row.base == name) {
        log::warn(&format!("cuda: degraded: this driver has a newer form of {name}, passed on"));
    }
    address
}

unsafe fn replace(code: Code, symbol: *const c_char, address: *mut *mut c_void) -> Code {
    // SAFETY: after a success the driver has read the name and written the address.
    unsafe {
        if code == SUCCESS
            && seat::config().is_some()
            && !symbol.is_null()
            && !address.is_null()
            && !(*address).is_null()
        {
            let name = CStr::from_ptr(symbol).to_string_lossy();
            *address = substitute(&name, *address);
        }
    }
    code
}

/// A NULL name or address kills the process inside driver 580; it is asked first, so it does so here too.
pub(crate) unsafe fn v1(
    real: unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64) -> Code,
    symbol: *const c_char,
    address: *mut *mut c_void,
    version: i32,
    flags: u64,
) -> Code {
    // SAFETY: passed on.
    unsafe { replace(real(symbol, address, version, flags), symbol, address) }
}

pub(crate) unsafe fn v2(
    real: unsafe extern "C" fn(*const c_char, *mut *mut c_void, i32, u64, *mut i32) -> Code,
    symbol: *const c_char,
    address: *mut *mut c_void,
    version: i32,
    flags: u64,
    found: *mut i32,
) -> Code {
    // SAFETY: passed on.
    unsafe { replace(real(symbol, address, version, flags, found), symbol, address) }
}
