//! The few driver functions that an ordinary program needs.

#![allow(unsafe_code)] // calls through C function pointers

use std::ffi::{CStr, c_char, c_void};

use crate::library::{Library, LibraryError};

type Status = i32;

const OUT_OF_MEMORY: Status = 2;

#[derive(Debug, thiserror::Error)]
#[error("{call} failed with {code} ({text})")]
pub(crate) struct CudaError {
    call: &'static str,
    code: Status,
    text: String,
}

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) total_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Cuda {
    init: unsafe extern "C" fn(u32) -> Status,
    error_string: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
    count: unsafe extern "C" fn(*mut i32) -> Status,
    get: unsafe extern "C" fn(*mut i32, i32) -> Status,
    name: unsafe extern "C" fn(*mut c_char, i32, i32) -> Status,
    uuid: unsafe extern "C" fn(*mut [u8; 16], i32) -> Status,
    total: unsafe extern "C" fn(*mut usize, i32) -> Status,
    create: unsafe extern "C" fn(*mut *mut c_void, u32, i32) -> Status,
    destroy: unsafe extern "C" fn(*mut c_void) -> Status,
    allocate: unsafe extern "C" fn(*mut u64, usize) -> Status,
    free: unsafe extern "C" fn(u64) -> Status,
    to_device: unsafe extern "C" fn(u64, *const c_void, usize) -> Status,
    to_host: unsafe extern "C" fn(*mut c_void, u64, usize) -> Status,
}

/// An open context.
#[derive(Debug)]
pub(crate) struct Context(*mut c_void);

impl Cuda {
    pub(crate) fn load() -> Result<Self, LibraryError> {
        let library = Library::load("libcuda.so.1")?;
        // SAFETY: the types are those of the driver API's header.
        unsafe {
            Ok(Self {
                init: library.function("cuInit")?,
                error_string: library.function("cuGetErrorString")?,
                count: library.function("cuDeviceGetCount")?,
                get: library.function("cuDeviceGet")?,
                name: library.function("cuDeviceGetName")?,
                uuid: library.function("cuDeviceGetUuid")?,
                total: library.function("cuDeviceTotalMem_v2")?,
                create: library.function("cuCtxCreate_v2")?,
                destroy: library.function("cuCtxDestroy_v2")?,
                allocate: library.function("cuMemAlloc_v2")?,
                free: library.function("cuMemFree_v2")?,
                to_device: library.function("cuMemcpyHtoD_v2")?,
                to_host: library.function("cuMemcpyDtoH_v2")?,
            })
        }
    }

    fn check(&self, call: &'static str, code: Status) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let mut text = std::ptr::null();
        // SAFETY: the driver answers NULL or a static C string.
        let text = unsafe {
            (self.error_string)(code, &raw mut text);
            if text.is_null() {
                "unknown".to_owned()
            } else {
                CStr::from_ptr(text).to_string_lossy().into_owned()
            }
        };
        Err(CudaError { call, code, text })
    }

    /// Starts the driver and describes every visible device.
    pub(crate) fn devices(&self) -> Result<Vec<Device>, CudaError> {
        let mut count = 0;
        // SAFETY: the out-parameter outlives the call.
        unsafe {
            self.check("cuInit", (self.init)(0))?;
            self.check("cuDeviceGetCount", (self.count)(&raw mut count))?;
        }
        (0..count).map(|ordinal| self.device(ordinal)).collect()
    }

    fn device(&self, ordinal: i32) -> Result<Device, CudaError> {
        let (mut device, mut name, mut uuid, mut total) = (0, [0 as c_char; 96], [0_u8; 16], 0);
        // SAFETY: every out-parameter outlives its call, and the name's length is its array's.
        unsafe {
            self.check("cuDeviceGet", (self.get)(&raw mut device, ordinal))?;
            self.check("cuDeviceGetName", (self.name)(name.as_mut_ptr(), 96, device))?;
            self.check("cuDeviceGetUuid", (self.uuid)(&raw mut uuid, device))?;
            self.check("cuDeviceTotalMem_v2", (self.total)(&raw mut total, device))?;
        }
        // SAFETY: the driver wrote a NUL within the array.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        Ok(Device { name, uuid: uuid_text(uuid), total_bytes: total as u64 })
    }

    pub(crate) fn create_context(&self, ordinal: i32) -> Result<Context, CudaError> {
        let mut context = std::ptr::null_mut();
        // SAFETY: the out-parameter outlives the call.
        self.check("cuCtxCreate_v2", unsafe { (self.create)(&raw mut context, 0, ordinal) })?;
        Ok(Context(context))
    }

    #[allow(clippy::needless_pass_by_value)] // the context is gone afterwards
    pub(crate) fn destroy_context(&self, context: Context) -> Result<(), CudaError> {
        // SAFETY: the context came from `create_context` and is used no more.
        self.check("cuCtxDestroy_v2", unsafe { (self.destroy)(context.0) })
    }

    /// `None` when the device has no room.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<Option<u64>, CudaError> {
        let mut address = 0;
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the out-parameter outlives the call.
        match unsafe { (self.allocate)(&raw mut address, length) } {
            OUT_OF_MEMORY => Ok(None),
            code => self.check("cuMemAlloc_v2", code).map(|()| Some(address)),
        }
    }

    pub(crate) fn free(&self, address: u64) -> Result<(), CudaError> {
        // SAFETY: the driver refuses what it did not give.
        self.check("cuMemFree_v2", unsafe { (self.free)(address) })
    }

    pub(crate) fn to_device(&self, address: u64, from: &[u64]) -> Result<(), CudaError> {
        // SAFETY: the source is a live slice of that many bytes.
        let code = unsafe { (self.to_device)(address, from.as_ptr().cast(), size_of_val(from)) };
        self.check("cuMemcpyHtoD_v2", code)
    }

    pub(crate) fn to_host(&self, to: &mut [u64], address: u64) -> Result<(), CudaError> {
        // SAFETY: the target is a live slice of that many bytes.
        let code = unsafe { (self.to_host)(to.as_mut_ptr().cast(), address, size_of_val(to)) };
        self.check("cuMemcpyDtoH_v2", code)
    }
}

fn uuid_text(bytes: [u8; 16]) -> String {
    let mut text = String::from("GPU-");
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.extend([byte >> 4, byte & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('?')));
    }
    text
}
