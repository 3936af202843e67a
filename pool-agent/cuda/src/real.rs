//! The real driver's functions, resolved by handle at first use.
//!
//! [`Symbol`] is one lazily resolved address. The calls below are those that this library makes on its own behalf; an absent one
//! (an older driver) answers "not found", like the driver itself does.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::abi::{AccessDesc, AllocationProp, Code, Device, DevicePtr, Handle, NOT_FOUND, Opaque, SUCCESS};
use crate::seat;

/// A symbol of the real driver.
pub(crate) struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    pub(crate) fn get(&self) -> Option<*mut c_void> {
        let known = self.address.load(Ordering::Acquire);
        if !known.is_null() {
            return Some(known);
        }
        let found = seat::real_symbol(self.name);
        self.address.store(found, Ordering::Release);
        (!found.is_null()).then_some(found)
    }
}

/// A NUL-terminated name.
pub(crate) const fn c_name(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(name) => name,
        Err(_) => panic!("the macros append exactly one NUL"),
    }
}

macro_rules! real_calls {
    ($( fn $call:ident = $symbol:literal ($($argument:ident : $type:ty),*); )*) => { $(
        /// # Safety
        /// As the driver's documentation of the symbol.
        pub(crate) unsafe fn $call($($argument: $type),*) -> Code {
            static SYMBOL: Symbol = Symbol::new(c_name(concat!($symbol, "\0")));
            let Some(address) = SYMBOL.get() else { return NOT_FOUND };
            // SAFETY: the driver exports the symbol with this signature (CUDA headers), stable for its versioned name.
            let function: unsafe extern "C" fn($($type),*) -> Code = unsafe { std::mem::transmute(address) };
            // SAFETY: passed on to the caller.
            unsafe { function($($argument),*) }
        }
    )* };
}

real_calls! {
    fn mem_create = "cuMemCreate" (handle: *mut Handle, bytes: usize, prop: *const AllocationProp, flags: u64);
    fn mem_release = "cuMemRelease" (handle: Handle);
    fn mem_map = "cuMemMap" (at: DevicePtr, bytes: usize, offset: usize, handle: Handle, flags: u64);
    fn mem_unmap = "cuMemUnmap" (at: DevicePtr, bytes: usize);
    fn mem_set_access = "cuMemSetAccess" (at: DevicePtr, bytes: usize, access: *const AccessDesc, count: usize);
    fn mem_reserve = "cuMemAddressReserve" (at: *mut DevicePtr, bytes: usize, alignment: usize, hint: DevicePtr, flags: u64);
    fn mem_unreserve = "cuMemAddressFree" (at: DevicePtr, bytes: usize);
    fn mem_import = "cuMemImportFromShareableHandle" (handle: *mut Handle, descriptor: *mut c_void, kind: i32);
    fn mem_export = "cuMemExportToShareableHandle" (shareable: *mut c_void, handle: Handle, kind: i32, flags: u64);
    fn mem_info = "cuMemGetInfo_v2" (free: *mut usize, total: *mut usize);
    fn copy = "cuMemcpyDtoD_v2" (to: DevicePtr, from: DevicePtr, bytes: usize);
    fn mem_free = "cuMemFree_v2" (at: DevicePtr);
    fn device_count = "cuDeviceGetCount" (count: *mut i32);
    fn ctx_current = "cuCtxGetCurrent" (context: *mut Opaque);
    fn ctx_synchronize = "cuCtxSynchronize" ();
    fn primary_state = "cuDevicePrimaryCtxGetState" (device: Device, flags: *mut u32, active: *mut i32);
    fn primary_retain = "cuDevicePrimaryCtxRetain" (context: *mut Opaque, device: Device);
    fn primary_release = "cuDevicePrimaryCtxRelease_v2" (device: Device);
    fn stream_synchronize = "cuStreamSynchronize" (stream: Opaque);
    fn stream_synchronize_ptsz = "cuStreamSynchronize_ptsz" (stream: Opaque);
    fn stream_capturing = "cuStreamIsCapturing" (stream: Opaque, status: *mut i32);
    fn stream_capturing_ptsz = "cuStreamIsCapturing_ptsz" (stream: Opaque, status: *mut i32);
    fn pool_current = "cuDeviceGetMemPool" (pool: *mut Opaque, device: Device);
    fn pool_attribute = "cuMemPoolGetAttribute" (pool: Opaque, attribute: i32, value: *mut c_void);
    fn graph_attribute = "cuDeviceGetGraphMemAttribute" (device: Device, attribute: i32, value: *mut c_void);
    fn graph_trim = "cuDeviceGraphMemTrim" (device: Device);
    fn exchange_capture_mode = "cuThreadExchangeStreamCaptureMode" (mode: *mut i32);
    fn pool_trim = "cuMemPoolTrimTo" (pool: Opaque, keep: usize);
    fn proc_address = "cuGetProcAddress_v2" (symbol: *const std::ffi::c_char, address: *mut *mut c_void, version: i32, flags: u64, found: *mut i32);
    fn proc_address_v1 = "cuGetProcAddress" (symbol: *const std::ffi::c_char, address: *mut *mut c_void, version: i32, flags: u64);
}

/// The calling thread's context, or null.
pub(crate) fn current_context() -> Opaque {
    let mut context = std::ptr::null_mut();
    // SAFETY: the out-pointer outlives the call.
    let code = unsafe { ctx_current(&raw mut context) };
    if code == SUCCESS { context } else { std::ptr::null_mut() }
}

/// Whether the driver has been initialised in this process.
pub(crate) fn initialised() -> bool {
    let mut count = 0;
    // SAFETY: the out-pointer outlives the call.
    unsafe { device_count(&raw mut count) == SUCCESS }
}
