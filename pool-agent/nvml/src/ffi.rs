//! The few NVML types that this library reads or writes, and the call into the real library.
//! Layouts and numbers are those of `nvml.h`; a test below holds them against `nvml-wrapper-sys`.

use std::ffi::{c_char, c_uint, c_ulonglong, c_void};

pub(crate) type Return = c_uint;
pub(crate) type Device = *mut c_void;

pub(crate) const SUCCESS: Return = 0;
pub(crate) const ERROR_NOT_SUPPORTED: Return = 3;
pub(crate) const ERROR_NOT_FOUND: Return = 6;
pub(crate) const ERROR_INSUFFICIENT_SIZE: Return = 7;
pub(crate) const ERROR_FUNCTION_NOT_FOUND: Return = 13;

/// `NVML_DEVICE_UUID_V2_BUFFER_SIZE`.
pub(crate) const UUID_BUFFER: usize = 96;
/// `NVML_VALUE_NOT_AVAILABLE` as an unsigned long long.
pub(crate) const NOT_AVAILABLE: c_ulonglong = c_ulonglong::MAX;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Memory {
    pub total: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct MemoryV2 {
    pub version: c_uint,
    pub total: c_ulonglong,
    pub reserved: c_ulonglong,
    pub free: c_ulonglong,
    pub used: c_ulonglong,
}

/// A process list entry of the first shape.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ProcessV1 {
    pub pid: c_uint,
    pub used_memory: c_ulonglong,
}

/// A process list entry of the second and third shape.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ProcessV2 {
    pub pid: c_uint,
    pub used_memory: c_ulonglong,
    pub gpu_instance: c_uint,
    pub compute_instance: c_uint,
}

/// `nvmlUUID_t`: a UUID as text (type 1) or 16 bytes (type 2).
#[repr(C)]
pub(crate) struct UuidQuery {
    pub version: c_uint,
    pub kind: c_uint,
    pub value: [c_char; 41],
}

/// Calls a function of the real library by its exported name, or returns FUNCTION_NOT_FOUND.
macro_rules! real {
    ($name:literal as fn($($ty:ty),* $(,)?), $($arg:expr),* $(,)?) => {{
        match $crate::seat::real_symbol(concat!($name, "\0")) {
            None => $crate::ffi::ERROR_FUNCTION_NOT_FOUND,
            Some(address) => {
                // SAFETY: the symbol of this name in NVML has this signature.
                let function: unsafe extern "C" fn($($ty),*) -> $crate::ffi::Return = unsafe { std::mem::transmute(address) };
                // SAFETY: the arguments are the caller's own, or point to live locals.
                unsafe { function($($arg),*) }
            }
        }
    }};
}
pub(crate) use real;

#[cfg(test)]
mod tests {
    use std::mem::{align_of, offset_of, size_of};

    use nvml_wrapper_sys::bindings as header;

    use super::*;

    /// Size, alignment and the offset of each field, ours beside the header's.
    macro_rules! same_layout {
        ($ours:ident = $theirs:ident { $($field:ident = $named:ident),* }) => {
            assert_eq!(size_of::<$ours>(), size_of::<header::$theirs>(), stringify!($ours));
            assert_eq!(align_of::<$ours>(), align_of::<header::$theirs>(), stringify!($ours));
            $(assert_eq!(
                offset_of!($ours, $field), offset_of!(header::$theirs, $named),
                concat!(stringify!($ours), ".", stringify!($field))
            );)*
        };
    }

    #[test]
    fn structures_are_laid_out_as_in_the_header() {
        same_layout!(Memory = nvmlMemory_st { total = total, free = free, used = used });
        same_layout!(MemoryV2 = nvmlMemory_v2_st {
            version = version, total = total, reserved = reserved, free = free, used = used
        });
        same_layout!(ProcessV1 = nvmlProcessInfo_v1_st { pid = pid, used_memory = usedGpuMemory });
        same_layout!(ProcessV2 = nvmlProcessInfo_v2_st {
            pid = pid, used_memory = usedGpuMemory, gpu_instance = gpuInstanceId, compute_instance = computeInstanceId
        });
        same_layout!(UuidQuery = nvmlUUID_v1_t { version = version, kind = type_, value = value });
        assert_eq!(size_of::<Device>(), size_of::<header::nvmlDevice_t>());
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        assert_eq!(size_of::<Return>(), size_of::<header::nvmlReturn_t>());
        for (ours, theirs) in [
            (SUCCESS, header::nvmlReturn_enum_NVML_SUCCESS),
            (ERROR_NOT_SUPPORTED, header::nvmlReturn_enum_NVML_ERROR_NOT_SUPPORTED),
            (ERROR_NOT_FOUND, header::nvmlReturn_enum_NVML_ERROR_NOT_FOUND),
            (ERROR_INSUFFICIENT_SIZE, header::nvmlReturn_enum_NVML_ERROR_INSUFFICIENT_SIZE),
            (ERROR_FUNCTION_NOT_FOUND, header::nvmlReturn_enum_NVML_ERROR_FUNCTION_NOT_FOUND),
        ] {
            assert_eq!(ours, theirs);
        }
        assert_eq!(u32::try_from(UUID_BUFFER), Ok(header::NVML_DEVICE_UUID_V2_BUFFER_SIZE));
        assert_eq!(
            NOT_AVAILABLE,
            c_ulonglong::from_ne_bytes(i64::from(header::NVML_VALUE_NOT_AVAILABLE).to_ne_bytes())
        );
    }
}
