//! What the runtime library checks: that the device count a program is told is the driver's own. A faked count stops it
//! with 103, "integrity checks failed".

use std::ffi::c_void;

use crate::code::Code;
use crate::driver::driver;
use crate::entry::put;

type CountFunction = Option<unsafe extern "C" fn(*mut i32) -> i32>;

driver_api! {
    /// Only in the simulated driver: calls the program's `cuDeviceGetCount` and compares, as the runtime library's start-up does.
    ["cuSimIntegrity" 1] fn cuSimIntegrity(count_function: CountFunction) {
        let driver = driver()?;
        let count_function = count_function.ok_or(Code::INVALID_VALUE)?;
        let mut told = -1;
        let code = count_function(&raw mut told);
        if code == 0 && usize::try_from(told) == Ok(driver.visible.len()) { Ok(()) } else { Err(Code::INTEGRITY) }
    }
    // Undocumented tables are not simulated.
    ["cuGetExportTable" 3000] fn cuGetExportTable(table: *mut *const c_void, _id: *const [u8; 16]) {
        put(table, std::ptr::null())?;
        Err(Code::NOT_FOUND)
    }
    ["cuProfilerStart" 4000] fn cuProfilerStart() { crate::context::current(driver()?).map(|_| ()) }
    ["cuProfilerStop" 4000] fn cuProfilerStop() { crate::context::current(driver()?).map(|_| ()) }
}
