//! The driver as a whole, and the library itself.

use std::ffi::c_char;

use crate::entry::{Return, put, put_text};
use crate::session::host;

/// What `nvmlErrorString` answers for a code.
///
/// # Safety
/// None is needed; the answer is a static text.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(code: u32) -> *const c_char {
    crate::entry::text(code)
}

nvml_api! {
    fn nvmlSystemGetDriverVersion(version: *mut c_char, length: u32) {
        put_text(version, length, &host()?.machine().driver_version)
    }
    fn nvmlSystemGetNVMLVersion(version: *mut c_char, length: u32) {
        let host = host()?;
        let major = host.machine().cuda_version / 1000;
        put_text(version, length, &format!("{major}.{}", host.machine().driver_version))
    }
    [nvmlSystemGetCudaDriverVersion] fn nvmlSystemGetCudaDriverVersion_v2(version: *mut i32) {
        put(version, host()?.machine().cuda_version)
    }
    fn nvmlSystemGetProcessName(pid: u32, name: *mut c_char, length: u32) {
        host()?;
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).map_err(|_| Return::NOT_FOUND)?;
        let program = command.split(|byte| *byte == 0).next().unwrap_or_default();
        let program = String::from_utf8_lossy(program);
        let room = (length as usize).saturating_sub(1);
        put_text(name, length, program.get(..room).unwrap_or(&program))
    }
    fn nvmlUnitGetCount(count: *mut u32) {
        host()?;
        put(count, 0)
    }
    fn nvmlGetExcludedDeviceCount(count: *mut u32) {
        host()?;
        put(count, 0)
    }
}
