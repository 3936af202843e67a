//! Memory between processes: a handle becomes a descriptor, a descriptor becomes a handle.

use std::os::fd::IntoRawFd;
use std::sync::Arc;

use crate::code::Code;
use crate::driver::driver;
use crate::entry::put;
use crate::memory::Memory;
use crate::vmm::{HANDLE_POSIX_DESCRIPTOR, behind, enter_handle};

/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`. Driver 580 gives one for a stitched range too; no device here could use it.
const DMA_BUF: i32 = 1;

driver_api! {
    ["cuMemExportToShareableHandle" 10020] fn cuMemExportToShareableHandle(
        shareable: *mut i32, handle: u64, kind: i32, flags: u64,
    ) {
        let driver = driver()?;
        if shareable.is_null() || flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let memory = behind(driver, handle)?;
        if kind != HANDLE_POSIX_DESCRIPTOR || memory.handle_types & kind == 0 {
            return Err(Code::INVALID_VALUE);
        }
        put(shareable, memory.export(driver)?.into_raw_fd())
    }
    // The descriptor travels in the pointer itself.
    ["cuMemImportFromShareableHandle" 10020] fn cuMemImportFromShareableHandle(
        handle: *mut u64, shareable: usize, kind: i32,
    ) {
        let driver = driver()?;
        if handle.is_null() || kind != HANDLE_POSIX_DESCRIPTOR {
            return Err(Code::INVALID_VALUE);
        }
        let descriptor = i32::try_from(shareable).map_err(|_| Code::INVALID_VALUE)?;
        put(handle, enter_handle(driver, Arc::new(Memory::import(driver, descriptor)?)))
    }
    ["cuMemGetHandleForAddressRange" 11070] fn cuMemGetHandleForAddressRange(
        handle: *mut std::ffi::c_void, address: u64, _bytes: usize, kind: i32, _flags: u64,
    ) {
        let driver = driver()?;
        if handle.is_null() || kind != DMA_BUF {
            return Err(Code::INVALID_VALUE);
        }
        if !driver.space().on_card(address) {
            return Err(Code::INVALID_VALUE);
        }
        Err(Code::NOT_SUPPORTED)
    }
}
