//! `CUresult` values, with the names and texts that `cuGetErrorName` and `cuGetErrorString` answer.

use std::ffi::{CStr, c_char};

/// An error code of the driver API; never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

pub(crate) type Outcome = Result<(), Code>;

macro_rules! codes {
    ($($name:ident = $value:literal, $driver_name:literal, $text:literal;)*) => {
        impl Code { $(pub(crate) const $name: Self = Self($value);)* }
        /// Value, name, text.
        const CODES: &[(i32, &CStr, &CStr)] = &[(0, c"CUDA_SUCCESS", c"no error"), $(($value, $driver_name, $text),)*];
    };
}

codes! {
    INVALID_VALUE = 1, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument";
    OUT_OF_MEMORY = 2, c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory";
    NOT_INITIALIZED = 3, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error";
    DEVICE_UNAVAILABLE = 46, c"CUDA_ERROR_DEVICE_UNAVAILABLE", c"CUDA-capable device(s) is/are busy or unavailable";
    NO_DEVICE = 100, c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected";
    INVALID_DEVICE = 101, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal";
    INTEGRITY = 103, c"CUDA_ERROR_SOFTWARE_VALIDITY_NOT_ESTABLISHED", c"integrity checks failed";
    INVALID_IMAGE = 200, c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid";
    INVALID_CONTEXT = 201, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context";
    PEER_ACCESS_UNSUPPORTED = 217, c"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", c"peer access is not supported between these two devices";
    NVLINK_UNCORRECTABLE = 220, c"CUDA_ERROR_NVLINK_UNCORRECTABLE", c"uncorrectable NVLink error detected during the execution";
    FILE_NOT_FOUND = 301, c"CUDA_ERROR_FILE_NOT_FOUND", c"file not found";
    OPERATING_SYSTEM = 304, c"CUDA_ERROR_OPERATING_SYSTEM", c"OS call failed or operation not supported on this OS";
    INVALID_HANDLE = 400, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle";
    ILLEGAL_STATE = 401, c"CUDA_ERROR_ILLEGAL_STATE", c"the operation cannot be performed in the present state";
    NOT_FOUND = 500, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found";
    ILLEGAL_ADDRESS = 700, c"CUDA_ERROR_ILLEGAL_ADDRESS", c"an illegal memory access was encountered";
    PEER_ACCESS_ALREADY_ENABLED = 704, c"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", c"peer access is already enabled";
    PEER_ACCESS_NOT_ENABLED = 705, c"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", c"peer access has not been enabled";
    CONTEXT_IS_DESTROYED = 709, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"context is destroyed";
    HOST_MEMORY_ALREADY_REGISTERED = 712, c"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", c"part or all of the requested memory range is already mapped";
    HOST_MEMORY_NOT_REGISTERED = 713, c"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", c"pointer does not correspond to a registered memory region";
    LAUNCH_FAILED = 719, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure";
    NOT_SUPPORTED = 801, c"CUDA_ERROR_NOT_SUPPORTED", c"operation not supported";
    STREAM_CAPTURE_UNSUPPORTED = 900, c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"operation not permitted when stream is capturing";
    UNKNOWN = 999, c"CUDA_ERROR_UNKNOWN", c"unknown error";
}

fn look_up(value: i32) -> Option<&'static (i32, &'static CStr, &'static CStr)> {
    CODES.iter().find(|(code, ..)| *code == value)
}

driver_api! {
    ["cuGetErrorName" 6000] fn cuGetErrorName(error: i32, name: *mut *const c_char) {
        let found = look_up(error);
        crate::entry::put(name, found.map_or(std::ptr::null(), |(_, name, _)| name.as_ptr()))?;
        found.map(|_| ()).ok_or(Code::INVALID_VALUE)
    }
    ["cuGetErrorString" 6000] fn cuGetErrorString(error: i32, text: *mut *const c_char) {
        let found = look_up(error);
        crate::entry::put(text, found.map_or(std::ptr::null(), |(_, _, text)| text.as_ptr()))?;
        found.map(|_| ()).ok_or(Code::INVALID_VALUE)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use cudarc::driver::sys::CUresult as header;

    use super::*;

    #[test]
    fn v14_codes_and_their_names_are_the_headers() {
        let known = [
            header::CUDA_SUCCESS,
            header::CUDA_ERROR_INVALID_VALUE,
            header::CUDA_ERROR_OUT_OF_MEMORY,
            header::CUDA_ERROR_NOT_INITIALIZED,
            header::CUDA_ERROR_DEVICE_UNAVAILABLE,
            header::CUDA_ERROR_NO_DEVICE,
            header::CUDA_ERROR_INVALID_DEVICE,
            header::CUDA_ERROR_INVALID_IMAGE,
            header::CUDA_ERROR_INVALID_CONTEXT,
            header::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
            header::CUDA_ERROR_NVLINK_UNCORRECTABLE,
            header::CUDA_ERROR_FILE_NOT_FOUND,
            header::CUDA_ERROR_OPERATING_SYSTEM,
            header::CUDA_ERROR_INVALID_HANDLE,
            header::CUDA_ERROR_ILLEGAL_STATE,
            header::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
            header::CUDA_ERROR_NOT_FOUND,
            header::CUDA_ERROR_ILLEGAL_ADDRESS,
            header::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
            header::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
            header::CUDA_ERROR_CONTEXT_IS_DESTROYED,
            header::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
            header::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
            header::CUDA_ERROR_LAUNCH_FAILED,
            header::CUDA_ERROR_NOT_SUPPORTED,
            header::CUDA_ERROR_UNKNOWN,
        ];
        for (value, name, _) in CODES.iter().filter(|(value, ..)| *value != Code::INTEGRITY.0) {
            let theirs = known.iter().find(|known| **known as i32 == *value).unwrap();
            assert_eq!(CString::new(format!("{theirs:?}")).unwrap().as_c_str(), *name);
        }
    }
}
