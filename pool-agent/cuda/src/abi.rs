//! The driver's types and numbers that this library reads or writes, with the driver's layout.
//!
//! A test compares every constant and layout with generated bindings: a wrong number never switches a feature off in silence.

use std::ffi::c_void;

/// `CUresult`.
pub(crate) type Code = i32;

pub(crate) const SUCCESS: Code = 0;
pub(crate) const INVALID_VALUE: Code = 1;
pub(crate) const OUT_OF_MEMORY: Code = 2;
pub(crate) const INVALID_CONTEXT: Code = 201;
pub(crate) const INVALID_HANDLE: Code = 400;
pub(crate) const NOT_FOUND: Code = 500;
pub(crate) const NOT_SUPPORTED: Code = 801;
pub(crate) const CAPTURE_WRONG_THREAD: Code = 908;
pub(crate) const UNKNOWN: Code = 999;

/// `CUdeviceptr`.
pub(crate) type DevicePtr = u64;
/// `CUmemGenericAllocationHandle`.
pub(crate) type Handle = u64;
/// `CUdevice`.
pub(crate) type Device = i32;
/// `CUcontext`, `CUstream`, `CUmemoryPool`.
pub(crate) type Opaque = *mut c_void;

pub(crate) const LOCATION_DEVICE: i32 = 1;
pub(crate) const ALLOCATION_PINNED: i32 = 1;
pub(crate) const HANDLE_POSIX_FD: i32 = 1;
pub(crate) const ACCESS_READ_WRITE: i32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Location {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

/// `CUmemAllocationProp`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct AllocationProp {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: Location,
    pub(crate) win32: *mut c_void,
    pub(crate) compression: u8,
    pub(crate) rdma_capable: u8,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 4],
}

/// `CUipcMemHandle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct IpcHandle(pub(crate) [u8; 64]);

/// `CUmemAccessDesc`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct AccessDesc {
    pub(crate) location: Location,
    pub(crate) flags: i32,
}

/// `CUmemPoolProps`: only its head is read here.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct PoolPropsHead {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: Location,
}

/// `CU_MEMORYTYPE_DEVICE`.
pub(crate) const MEMORY_TYPE_DEVICE: u32 = 2;

pub(crate) const ATTRIBUTE_CONTEXT: i32 = 1;
pub(crate) const ATTRIBUTE_MEMORY_TYPE: i32 = 2;
pub(crate) const ATTRIBUTE_HOST_POINTER: i32 = 4;
pub(crate) const ATTRIBUTE_P2P_TOKENS: i32 = 5;
pub(crate) const ATTRIBUTE_BUFFER_ID: i32 = 7;
pub(crate) const ATTRIBUTE_DEVICE_ORDINAL: i32 = 9;
pub(crate) const ATTRIBUTE_LEGACY_IPC: i32 = 10;
pub(crate) const ATTRIBUTE_RANGE_START: i32 = 11;
pub(crate) const ATTRIBUTE_RANGE_SIZE: i32 = 12;
pub(crate) const ATTRIBUTE_ALLOWED_HANDLE_TYPES: i32 = 14;
pub(crate) const ATTRIBUTE_MAPPING_SIZE: i32 = 18;
pub(crate) const ATTRIBUTE_MAPPING_BASE: i32 = 19;
pub(crate) const ATTRIBUTE_MEMORY_BLOCK_ID: i32 = 20;

/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`, `…_USED_MEM_CURRENT`, `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`.
pub(crate) const POOL_RESERVED: i32 = 5;
pub(crate) const POOL_USED: i32 = 7;
pub(crate) const GRAPH_RESERVED: i32 = 2;

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, `…_RELAXED`.
pub(crate) const CAPTURE_GLOBAL: i32 = 0;
pub(crate) const CAPTURE_RELAXED: i32 = 2;

/// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`.
pub(crate) const PROC_PER_THREAD: u64 = 2;

impl Location {
    /// The pool: the only device that the tenant sees.
    pub(crate) const POOL: Self = Self { kind: LOCATION_DEVICE, id: 0 };
}

impl AllocationProp {
    /// Memory of the primary that can be shared with other processes: the promise costs nothing until it is used.
    pub(crate) const LOCAL: Self = Self {
        kind: ALLOCATION_PINNED,
        handle_types: HANDLE_POSIX_FD,
        location: Location::POOL,
        win32: std::ptr::null_mut(),
        compression: 0,
        rdma_capable: 0,
        usage: 0,
        reserved: [0; 4],
    };
}

#[cfg(test)]
mod tests {
    use cudarc::driver::sys;

    use super::*;

    #[test]
    fn v14_numbers_and_layouts_are_the_driver_headers() {
        use sys::CUpointer_attribute_enum as attribute;
        let pairs = [
            (INVALID_VALUE, sys::CUresult::CUDA_ERROR_INVALID_VALUE as i32),
            (OUT_OF_MEMORY, sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY as i32),
            (INVALID_CONTEXT, sys::CUresult::CUDA_ERROR_INVALID_CONTEXT as i32),
            (INVALID_HANDLE, sys::CUresult::CUDA_ERROR_INVALID_HANDLE as i32),
            (NOT_FOUND, sys::CUresult::CUDA_ERROR_NOT_FOUND as i32),
            (NOT_SUPPORTED, sys::CUresult::CUDA_ERROR_NOT_SUPPORTED as i32),
            (CAPTURE_WRONG_THREAD, sys::CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD as i32),
            (UNKNOWN, sys::CUresult::CUDA_ERROR_UNKNOWN as i32),
            (ATTRIBUTE_CONTEXT, attribute::CU_POINTER_ATTRIBUTE_CONTEXT as i32),
            (ATTRIBUTE_MEMORY_TYPE, attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as i32),
            (ATTRIBUTE_HOST_POINTER, attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER as i32),
            (ATTRIBUTE_P2P_TOKENS, attribute::CU_POINTER_ATTRIBUTE_P2P_TOKENS as i32),
            (ATTRIBUTE_BUFFER_ID, attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID as i32),
            (ATTRIBUTE_DEVICE_ORDINAL, attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as i32),
            (ATTRIBUTE_LEGACY_IPC, attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE as i32),
            (ATTRIBUTE_RANGE_START, attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR as i32),
            (ATTRIBUTE_RANGE_SIZE, attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE as i32),
            (ATTRIBUTE_ALLOWED_HANDLE_TYPES, attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES as i32),
            (ATTRIBUTE_MAPPING_SIZE, attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE as i32),
            (ATTRIBUTE_MAPPING_BASE, attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR as i32),
            (ATTRIBUTE_MEMORY_BLOCK_ID, attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID as i32),
            (POOL_RESERVED, sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT as i32),
            (POOL_USED, sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_USED_MEM_CURRENT as i32),
            (GRAPH_RESERVED, sys::CUgraphMem_attribute_enum::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT as i32),
            (CAPTURE_GLOBAL, sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL as i32),
            (CAPTURE_RELAXED, sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED as i32),
            (LOCATION_DEVICE, sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE as i32),
            (ALLOCATION_PINNED, sys::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED as i32),
            (ACCESS_READ_WRITE, sys::CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as i32),
        ];
        for (at, (ours, theirs)) in pairs.into_iter().enumerate() {
            assert_eq!(ours, theirs, "pair {at}");
        }
        let per_thread =
            sys::CUdriverProcAddress_flags_enum::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM as u64;
        assert_eq!(PROC_PER_THREAD, per_thread);
        assert_eq!(size_of::<AllocationProp>(), size_of::<sys::CUmemAllocationProp>());
        assert_eq!(size_of::<IpcHandle>(), size_of::<sys::CUipcMemHandle>());
        assert_eq!(size_of::<AccessDesc>(), size_of::<sys::CUmemAccessDesc>());
        assert_eq!(
            std::mem::offset_of!(AllocationProp, rdma_capable),
            std::mem::offset_of!(sys::CUmemAllocationProp, allocFlags) + 1
        );
        assert_eq!(
            std::mem::offset_of!(AllocationProp, location),
            std::mem::offset_of!(sys::CUmemAllocationProp, location)
        );
        assert_eq!(
            std::mem::offset_of!(PoolPropsHead, location),
            std::mem::offset_of!(sys::CUmemPoolProps, location)
        );
    }
}
