//! The few driver calls of a probe, each a safe function that names itself when it fails. For throw-away processes only: a panic
//! or a crash in here is a failed probe.

#![allow(unsafe_code)] // The CUDA driver is a C library; every block below is one call of it with pointers to locals.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use cudarc::driver::sys::{self, CUresult};
use tarn_protocol::ids::GpuUuid;

use super::stream::Stream;
use super::words::ProbeError;

pub type Address = u64;

pub(super) fn checked(call: &'static str, result: CUresult) -> Result<(), ProbeError> {
    if result == CUresult::CUDA_SUCCESS {
        Ok(())
    } else {
        Err(ProbeError::Driver { call, name: name(result) })
    }
}

fn name(result: CUresult) -> String {
    format!("{result:?}")
}

fn bytes_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The one card that this process sees.
#[derive(Debug)]
pub struct Card {
    device: sys::CUdevice,
}

/// Physical memory that this process holds; mapped or not.
#[derive(Debug)]
pub struct Memory {
    handle: sys::CUmemGenericAllocationHandle,
    bytes: u64,
}

impl Card {
    pub fn open(uuid: &GpuUuid) -> Result<Self, ProbeError> {
        // SAFETY: only tries to load the library.
        if !unsafe { sys::is_culib_present() } {
            return Err(ProbeError::NoDriver);
        }
        // SAFETY: no arguments to get wrong.
        checked("cuInit", unsafe { sys::cuInit(0) })?;
        let mut count: c_int = 0;
        // SAFETY: `count` outlives the call.
        checked("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
        for ordinal in 0..count {
            let mut device = 0;
            // SAFETY: `device` outlives the call.
            checked("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut device, ordinal) })?;
            let mut found = sys::CUuuid { bytes: [0; 16] };
            // SAFETY: `found` outlives the call.
            checked("cuDeviceGetUuid", unsafe { sys::cuDeviceGetUuid_v2(&raw mut found, device) })?;
            if GpuUuid::from_bytes(found.bytes.map(|byte| byte.to_ne_bytes()[0])) == *uuid {
                return Ok(Self { device });
            }
        }
        Err(ProbeError::NoCard)
    }

    fn properties(&self) -> sys::CUmemAllocationProp {
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut properties: sys::CUmemAllocationProp = unsafe { std::mem::zeroed() };
        properties.type_ = sys::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.requestedHandleTypes =
            sys::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        properties.location.type_ = sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = self.device;
        properties
    }

    /// Needs no context.
    pub fn create(&self, bytes: u64) -> Result<Memory, ProbeError> {
        let properties = self.properties();
        let mut handle = 0;
        // SAFETY: both pointers are to locals that outlive the call.
        let result = unsafe { sys::cuMemCreate(&raw mut handle, bytes_of(bytes), &raw const properties, 0) };
        checked("cuMemCreate", result)?;
        Ok(Memory { handle, bytes })
    }

    pub fn import(&self, descriptor: &OwnedFd, bytes: u64) -> Result<Memory, ProbeError> {
        let mut handle = 0;
        let number = usize::try_from(descriptor.as_raw_fd()).unwrap_or(usize::MAX);
        // SAFETY: the driver takes the descriptor's number in the place of a pointer, and does not keep it.
        let result = unsafe {
            sys::cuMemImportFromShareableHandle(
                &raw mut handle,
                std::ptr::without_provenance_mut(number),
                sys::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            )
        };
        checked("cuMemImportFromShareableHandle", result)?;
        Ok(Memory { handle, bytes })
    }

    /// Makes this card current for the thread.
    pub fn enter(&self) -> Result<(), ProbeError> {
        let mut context = std::ptr::null_mut();
        // SAFETY: `context` outlives the call.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, self.device) };
        checked("cuDevicePrimaryCtxRetain", result)?;
        // SAFETY: the context was just retained and is never released: the process ends first.
        checked("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })
    }

    /// Maps `memory` and lets this card reach it.
    pub fn map(&self, memory: &Memory) -> Result<Address, ProbeError> {
        let mut address = 0;
        let size = bytes_of(memory.bytes);
        // SAFETY: `address` outlives the call.
        let result = unsafe { sys::cuMemAddressReserve(&raw mut address, size, 0, 0, 0) };
        checked("cuMemAddressReserve", result)?;
        // SAFETY: the range was just reserved with this size.
        checked("cuMemMap", unsafe { sys::cuMemMap(address, size, 0, memory.handle, 0) })?;
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut access: sys::CUmemAccessDesc = unsafe { std::mem::zeroed() };
        access.location.type_ = sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE;
        access.location.id = self.device;
        access.flags = sys::CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        // SAFETY: the range is mapped and `access` outlives the call.
        let result = unsafe { sys::cuMemSetAccess(address, size, &raw const access, 1) };
        if result == CUresult::CUDA_SUCCESS {
            Ok(address)
        } else {
            Err(ProbeError::Access { name: name(result) })
        }
    }

    /// Memory of this card's own.
    pub fn allocate(&self, bytes: u64) -> Result<Address, ProbeError> {
        let memory = self.create(bytes)?;
        self.map(&memory)
    }
}

impl Memory {
    pub fn export(&self) -> Result<OwnedFd, ProbeError> {
        let mut descriptor: c_int = -1;
        // SAFETY: for this handle type the driver writes an `int`.
        let result = unsafe {
            sys::cuMemExportToShareableHandle(
                (&raw mut descriptor).cast::<c_void>(),
                self.handle,
                sys::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                0,
            )
        };
        checked("cuMemExportToShareableHandle", result)?;
        // SAFETY: the driver just opened it for us.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }
}

pub fn upload(to: Address, bytes: &[u8]) -> Result<(), ProbeError> {
    // SAFETY: the source is a slice; the driver checks the target.
    checked("cuMemcpyHtoD", unsafe { sys::cuMemcpyHtoD_v2(to, bytes.as_ptr().cast(), bytes.len()) })
}

pub fn download(from: Address, bytes: u64) -> Result<Vec<u8>, ProbeError> {
    let mut target = vec![0; bytes_of(bytes)];
    // SAFETY: the target has as many bytes as are asked for; the driver checks the source.
    let result = unsafe { sys::cuMemcpyDtoH_v2(target.as_mut_ptr().cast(), from, target.len()) };
    checked("cuMemcpyDtoH", result)?;
    Ok(target)
}

/// From one place on a card to another, by copy engine, in the order of `stream`.
pub fn copy(stream: &Stream, to: Address, from: Address, bytes: u64) -> Result<(), ProbeError> {
    // SAFETY: the driver checks both ranges.
    let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes_of(bytes), stream.raw()) };
    checked("cuMemcpyDtoDAsync", result)
}

/// Sets memory to zero, in the order of `stream`.
pub fn clear(stream: &Stream, at: Address, bytes: u64) -> Result<(), ProbeError> {
    // SAFETY: the driver checks the range.
    checked("cuMemsetD8Async", unsafe { sys::cuMemsetD8Async(at, 0, bytes_of(bytes), stream.raw()) })
}

/// Free and total bytes of the current card.
pub fn memory_info() -> Result<(u64, u64), ProbeError> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: both out-pointers outlive the call.
    checked("cuMemGetInfo", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
    Ok((free as u64, total as u64))
}

pub fn synchronize() -> Result<(), ProbeError> {
    // SAFETY: no arguments.
    checked("cuCtxSynchronize", unsafe { sys::cuCtxSynchronize() })
}
