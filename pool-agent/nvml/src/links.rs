//! Links out of the visible card lead to donors, which are not there: inside a pool these questions are not supported,
//! as on a card without NVLink. A wrong question gets the real library's own answer, and so does every question outside a pool.

use std::ffi::{c_int, c_uint, c_void};

use crate::ffi::{Device, ERROR_NOT_SUPPORTED, Return, SUCCESS, real};
use crate::seat;

/// One hidden question per line: the symbol and its arguments after the device.
macro_rules! hidden {
    ($($symbol:ident $literal:literal ($($arg:ident: $ty:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $symbol(device: Device, $($arg: $ty),*) -> Return {
            let status = real!($literal as fn(Device, $($ty),*), device, $($arg),*);
            if status == SUCCESS && seat::pool().is_some() { ERROR_NOT_SUPPORTED } else { status }
        }
    )*};
}

hidden! {
    nvmlDeviceGetNvLinkState "nvmlDeviceGetNvLinkState" (link: c_uint, state: *mut c_int);
    nvmlDeviceGetNvLinkVersion "nvmlDeviceGetNvLinkVersion" (link: c_uint, version: *mut c_uint);
    nvmlDeviceGetNvLinkCapability "nvmlDeviceGetNvLinkCapability" (link: c_uint, capability: c_int, out: *mut c_uint);
    nvmlDeviceGetNvLinkRemotePciInfo "nvmlDeviceGetNvLinkRemotePciInfo" (link: c_uint, pci: *mut c_void);
    nvmlDeviceGetNvLinkRemotePciInfo_v2 "nvmlDeviceGetNvLinkRemotePciInfo_v2" (link: c_uint, pci: *mut c_void);
    nvmlDeviceGetNvLinkRemoteDeviceType "nvmlDeviceGetNvLinkRemoteDeviceType" (link: c_uint, kind: *mut c_int);
    nvmlDeviceGetGpuFabricInfo "nvmlDeviceGetGpuFabricInfo" (info: *mut c_void);
    nvmlDeviceGetGpuFabricInfoV "nvmlDeviceGetGpuFabricInfoV" (info: *mut c_void);
}
