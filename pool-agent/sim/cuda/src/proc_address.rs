//! `cuGetProcAddress`: the newest form of a function that the asked version already had.

use std::ffi::{CStr, c_char, c_void};

use crate::code::Code;
use crate::entry::{Row, offer, put};

const FLAG_PER_THREAD: u64 = 2;
const FLAGS_KNOWN: u64 = 3;

const FOUND: i32 = 0;
const SYMBOL_NOT_FOUND: i32 = 1;
const VERSION_NOT_SUFFICIENT: i32 = 2;

fn tables() -> [&'static [Row]; 23] {
    [
        crate::capture::ROWS,
        crate::code::ROWS,
        crate::context::ROWS,
        crate::device::ROWS,
        crate::device_attributes::ROWS,
        crate::driver::ROWS,
        crate::event::ROWS,
        crate::export_table::ROWS,
        crate::host_memory::ROWS,
        crate::ipc::ROWS,
        crate::launch::ROWS,
        crate::memcpy::ROWS,
        crate::memset::ROWS,
        crate::module::ROWS,
        crate::native::ROWS,
        crate::peer::ROWS,
        crate::pointer::ROWS,
        crate::pools::ROWS,
        crate::stream::ROWS,
        crate::vmm::ROWS,
        crate::vmm_access::ROWS,
        crate::vmm_share::ROWS,
        ROWS,
    ]
}

/// The address for a name and version, or why there is none.
fn look_up(name: &str, version: i32, per_thread: bool) -> Result<*const c_void, i32> {
    let named = || tables().into_iter().flatten().filter(|row| row.base == name);
    let newest = named().filter(|row| row.version <= version).max_by_key(|row| row.version);
    match newest {
        Some(row) => Ok(row.per_thread.filter(|_| per_thread).unwrap_or(row.address)),
        None if named().next().is_some() => Err(VERSION_NOT_SUFFICIENT),
        None => Err(SYMBOL_NOT_FOUND),
    }
}

/// Looks a C string up.
///
/// # Safety
/// `name` is NULL or a C string.
unsafe fn asked(name: *const c_char, version: i32, flags: u64) -> Result<Result<*const c_void, i32>, Code> {
    if name.is_null() || flags & !FLAGS_KNOWN != 0 {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not NULL, and the caller vouches for the rest.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    Ok(look_up(&name, version, flags & FLAG_PER_THREAD != 0))
}

// What happens without the symbol was measured on driver 580: the first form fails and leaves the address alone, the second
// succeeds and says so by a NULL address and its status.
driver_api! {
    ["cuGetProcAddress" 11030] fn cuGetProcAddress(
        name: *const c_char, address: *mut *const c_void, version: i32, flags: u64,
    ) {
        if address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        put(address, asked(name, version, flags)?.map_err(|_| Code::NOT_FOUND)?)
    }
    ["cuGetProcAddress" 12000] fn cuGetProcAddress_v2(
        name: *const c_char, address: *mut *const c_void, version: i32, flags: u64, status: *mut i32,
    ) {
        if address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let found = asked(name, version, flags)?;
        offer(status, found.err().unwrap_or(FOUND));
        put(address, found.unwrap_or(std::ptr::null()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_gets_the_form_it_had() {
        let address = |name, version, thread| look_up(name, version, thread);
        assert_eq!(address("cuMemAlloc", 12_000, false), Ok(crate::native::cuMemAlloc_v2 as *const c_void));
        assert_eq!(address("cuMemAlloc", 2_000, false), Ok(crate::native::cuMemAlloc as *const c_void));
        assert_eq!(address("cuMemAllocAsync", 11_000, false), Err(VERSION_NOT_SUFFICIENT));
        assert_eq!(address("cuNoSuch", 12_000, false), Err(SYMBOL_NOT_FOUND));
        let plain = address("cuMemcpyHtoDAsync", 12_000, false);
        assert_ne!(plain, address("cuMemcpyHtoDAsync", 12_000, true));
        assert_eq!(address("cuGetProcAddress", 12_000, false), Ok(cuGetProcAddress_v2 as *const c_void));
        assert_eq!(address("cuGetProcAddress", 11_030, false), Ok(cuGetProcAddress as *const c_void));
    }
}
