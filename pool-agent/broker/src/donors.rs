//! The donor cards through the real driver: memory by the driver's virtual memory calls, use by NVML, both by UUID.
//!
//! No context is ever opened: physical handles need none, and a context would cost hundreds of MiB per donor and show this process as
//! a compute process on cards that nobody pays for.
//!
//! In a hardware trial on one card (see `PoolConfig::donors_on_primary`) the card's own figure mixes the tenant's local memory with
//! the donors', so each donor's use is what this process itself keeps there. A successor of a broker that died knows nothing of
//! its predecessor's chunks then; a real pool's cards show them.

#![allow(unsafe_code)] // The driver is a C library; each block says why the call is sound.

use std::ffi::OsStr;
use std::os::fd::{FromRawFd, OwnedFd};

use cudarc::driver::sys;
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use tarn_protocol::ids::GpuUuid;
use tarn_protocol::pool_config::PoolConfig;

use crate::ledger::Donor;
use crate::memory::{DonorMemory, DriverRefusal};

#[derive(Debug, thiserror::Error)]
pub enum DonorsError {
    #[error("there is no libcuda.so.1 on the library path")]
    NoDriver,
    #[error("the driver call {call} failed with code {code}")]
    Driver { call: &'static str, code: u32 },
    #[error("NVML cannot be loaded")]
    Nvml(#[source] NvmlError),
}

/// The cards of one pool, in the order of its config. A card that the driver does not have gives nothing.
pub struct Donors {
    ordinals: Vec<Option<i32>>,
    uuids: Vec<GpuUuid>,
    /// Whether the driver can let network cards reach mapped memory of each. Frameworks ask for that of every physical handle
    /// where a card offers it, so chunks that lack it would be of no use to them.
    rdma: Vec<bool>,
    nvml: Nvml,
    /// Bytes that this process keeps on each donor, where the card does not tell donors apart.
    kept: Option<Vec<u64>>,
}

impl std::fmt::Debug for Donors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Donors")
            .field("ordinals", &self.ordinals)
            .field("uuids", &self.uuids)
            .finish_non_exhaustive()
    }
}

fn checked(call: &'static str, result: sys::CUresult) -> Result<(), DonorsError> {
    match refused(result) {
        Ok(()) => Ok(()),
        Err(refusal) => Err(DonorsError::Driver { call, code: refusal.code }),
    }
}

fn refused(result: sys::CUresult) -> Result<(), DriverRefusal> {
    match result as u32 {
        0 => Ok(()),
        code => Err(DriverRefusal { code }),
    }
}

impl Donors {
    /// Starts the driver and finds each card.
    pub fn open(config: &PoolConfig, nvml_library: &OsStr) -> Result<Self, DonorsError> {
        let uuids: Vec<GpuUuid> = config.donors.iter().map(|donor| donor.uuid.clone()).collect();
        // SAFETY: only loads and unloads the driver library.
        if !unsafe { sys::is_culib_present() } {
            return Err(DonorsError::NoDriver);
        }
        // SAFETY: the first driver call of the process; flags must be 0.
        checked("cuInit", unsafe { sys::cuInit(0) })?;
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        checked("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
        let mut ordinals = vec![None; uuids.len()];
        for ordinal in 0..count {
            let uuid = uuid_of(ordinal)?;
            for (found, _) in ordinals.iter_mut().zip(&uuids).filter(|(_, wanted)| **wanted == uuid) {
                *found = Some(ordinal);
            }
        }
        let rdma = ordinals.iter().map(|ordinal| ordinal.is_some_and(offers_rdma)).collect();
        let nvml = Nvml::builder().lib_path(nvml_library).init().map_err(DonorsError::Nvml)?;
        let kept = config.donors_on_primary.then(|| vec![0; uuids.len()]);
        Ok(Self { ordinals, uuids, rdma, nvml, kept })
    }

    /// Whether the driver has the card.
    pub fn present(&self, donor: Donor) -> bool {
        self.ordinals.get(donor.0).copied().flatten().is_some()
    }
}

fn offers_rdma(device: i32) -> bool {
    let attribute = sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
    let mut offered = 0;
    // SAFETY: the out-pointer outlives the call, and the device is one that the driver named.
    let asked = unsafe { sys::cuDeviceGetAttribute(&raw mut offered, attribute, device) };
    refused(asked).is_ok() && offered != 0
}

fn uuid_of(ordinal: i32) -> Result<GpuUuid, DonorsError> {
    let (mut device, mut uuid) = (0, sys::CUuuid { bytes: [0; 16] });
    // SAFETY: the out-pointers outlive the calls, and the ordinal is below the device count.
    let found = unsafe { sys::cuDeviceGet(&raw mut device, ordinal) };
    checked("cuDeviceGet", found)?;
    // SAFETY: as above, with the device that the driver just named.
    let named = unsafe { sys::cuDeviceGetUuid_v2(&raw mut uuid, device) };
    checked("cuDeviceGetUuid", named)?;
    Ok(GpuUuid::from_bytes(uuid.bytes.map(i8::cast_unsigned)))
}

/// One physical allocation on a donor.
#[derive(Debug)]
pub struct Chunk {
    handle: sys::CUmemGenericAllocationHandle,
    donor: Donor,
    bytes: u64,
}

/// `CUDA_ERROR_INVALID_DEVICE`, for a card that this host does not have.
const NO_SUCH_CARD: DriverRefusal = DriverRefusal { code: 101 };

/// A descriptor of a chunk. The driver takes 0.6 to 0.9 ms for it, and nearly as long for the last close: more than for all the
/// other steps of a chunk below 8 GiB.
fn export(chunk: &Chunk) -> Result<OwnedFd, DriverRefusal> {
    let mut descriptor: std::ffi::c_int = -1;
    // SAFETY: for POSIX descriptors the driver writes one int through the pointer, which outlives the call.
    let exported = unsafe {
        sys::cuMemExportToShareableHandle(
            (&raw mut descriptor).cast(),
            chunk.handle,
            sys::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            0,
        )
    };
    refused(exported)?;
    // SAFETY: the driver succeeded, so it opened this descriptor for us and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

impl DonorMemory for Donors {
    type Handle = Chunk;

    fn create(&mut self, donor: Donor, bytes: u64) -> Result<(Chunk, OwnedFd), DriverRefusal> {
        let ordinal = self.ordinals.get(donor.0).copied().flatten().ok_or(NO_SUCH_CARD)?;
        let size = usize::try_from(bytes).map_err(|_| NO_SUCH_CARD)?;
        let prop = sys::CUmemAllocationProp {
            type_: sys::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes:
                sys::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            location: sys::CUmemLocation {
                type_: sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE,
                id: ordinal,
            },
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
                compressionType: 0,
                gpuDirectRDMACapable: u8::from(self.rdma(donor)),
                usage: 0,
                reserved: [0; 4],
            },
        };
        let mut handle = 0;
        // SAFETY: both pointers outlive the call; the property struct is fully initialised.
        refused(unsafe { sys::cuMemCreate(&raw mut handle, size, &raw const prop, 0) })?;
        if let Some(kept) = &mut self.kept {
            kept[donor.0] += bytes;
        }
        let chunk = Chunk { handle, donor, bytes };
        match export(&chunk) {
            Ok(descriptor) => Ok((chunk, descriptor)),
            Err(refusal) => {
                self.release(chunk);
                Err(refusal)
            }
        }
    }

    fn export(&self, handle: &Chunk) -> Result<OwnedFd, DriverRefusal> {
        export(handle)
    }

    fn rdma(&self, donor: Donor) -> bool {
        self.rdma.get(donor.0).copied().unwrap_or(false)
    }

    fn release(&mut self, handle: Chunk) {
        // SAFETY: the handle came from `create` and is consumed here.
        if let Err(refusal) = refused(unsafe { sys::cuMemRelease(handle.handle) }) {
            tracing::warn!(
                code = refusal.code,
                "the driver refused to release a chunk; it stays quarantined"
            );
        } else if let Some(kept) = &mut self.kept {
            kept[handle.donor.0] -= handle.bytes;
        }
    }

    fn used_bytes(&mut self, donor: Donor) -> Option<u64> {
        if let Some(kept) = &self.kept {
            return kept.get(donor.0).copied();
        }
        let uuid = self.uuids.get(donor.0)?;
        let read = self.nvml.device_by_uuid(uuid.as_str()).and_then(|device| device.memory_info());
        match read {
            Ok(memory) => Some(memory.used),
            Err(error) => {
                tracing::warn!(%uuid, %error, "the card does not say how much of it is in use");
                None
            }
        }
    }
}
