//! The donor cards through the real driver: memory by the driver's virtual memory calls, use by NVML, both by UUID.
//!
//! No context is ever opened: physical handles need none, and a context would cost hundreds of MiB per donor and show this process as
//! a compute process on cards that nobody pays for.
//!
//! The host tier, where the pool has one, is the place after the last donor: memory of the host, on the NUMA node beside the first card.
//! Nothing shows how much of it is in use, so the books are all that is known: what this process keeps there, and what a predecessor lent
//! and nobody has given back. A process that died while no broker was there leaves its share of the tier unusable for the rest of the
//! pool's life, rather than lent twice.
//!
//! In a hardware trial on one card (see `PoolConfig::donors_on_primary`) the card's own figure mixes the tenant's local memory with
//! the donors', so each donor's use is known in the same way.

#![allow(unsafe_code)] // The driver is a C library; each block says why the call is sound.

use std::ffi::{CStr, OsStr};
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
    #[error("libcuda.so.1 has no {symbol}: this driver is older than a pool needs (550 and later)")]
    NoSymbol { symbol: &'static str },
    #[error("the driver call {call} failed with code {code}")]
    Driver { call: &'static str, code: u32 },
    #[error("NVML cannot be loaded")]
    Nvml(#[source] NvmlError),
}

/// What one place of the pool is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Card {
        /// `None`: the driver has no such card, and it gives nothing.
        ordinal: Option<i32>,
        uuid: GpuUuid,
        /// Whether the driver can let network cards reach mapped memory of it. Frameworks ask for that of every physical handle
        /// where a card offers it, so chunks that lack it would be of no use to them.
        rdma: bool,
    },
    Host {
        numa_node: i32,
    },
}

/// The places of one pool: its cards in the order of its config, then the host tier.
pub struct Donors {
    places: Vec<Place>,
    nvml: Nvml,
    /// Bytes at each place that this process keeps, or inherited.
    kept: Vec<u64>,
    /// The cards do not tell donors apart: what this process keeps is all that is known.
    trial: bool,
}

impl std::fmt::Debug for Donors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Donors").field("places", &self.places).finish_non_exhaustive()
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
        // SAFETY: only loads and unloads the driver library.
        if !unsafe { sys::is_culib_present() } {
            return Err(DonorsError::NoDriver);
        }
        if let Some(symbol) = missing_symbol() {
            return Err(DonorsError::NoSymbol { symbol });
        }
        // SAFETY: the first driver call of the process; flags must be 0.
        checked("cuInit", unsafe { sys::cuInit(0) })?;
        let mut count = 0;
        // SAFETY: `count` outlives the call.
        checked("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
        let ordinals: Vec<(GpuUuid, i32)> =
            (0..count).map(|ordinal| Ok((uuid_of(ordinal)?, ordinal))).collect::<Result<_, _>>()?;
        let ordinal_of =
            |uuid: &GpuUuid| ordinals.iter().find(|(known, _)| known == uuid).map(|(_, ordinal)| *ordinal);
        let cards = config.donors.iter().map(|donor| {
            let ordinal = ordinal_of(&donor.uuid);
            Place::Card { ordinal, uuid: donor.uuid.clone(), rdma: ordinal.is_some_and(offers_rdma) }
        });
        let host = config.host_tier_bytes.map(|_| {
            let beside =
                std::iter::once(&config.primary.uuid).chain(config.donors.iter().map(|donor| &donor.uuid));
            let numa_node = beside.filter_map(ordinal_of).find_map(numa_node_of).unwrap_or(0);
            Place::Host { numa_node }
        });
        let places: Vec<Place> = cards.chain(host).collect();
        let nvml = Nvml::builder().lib_path(nvml_library).init().map_err(DonorsError::Nvml)?;
        let kept = vec![0; places.len()];
        Ok(Self { places, nvml, kept, trial: config.donors_on_primary })
    }

    /// Whether the driver has the card, or the place is the host.
    pub fn present(&self, donor: Donor) -> bool {
        !matches!(self.places.get(donor.0), None | Some(Place::Card { ordinal: None, .. }))
    }
}

/// Of what this file calls, the first function that the driver lacks. The binding looks each up at its first call, and ends the process when
/// it is not there: that would be in the middle of a lease.
fn missing_symbol() -> Option<&'static str> {
    const CALLED: [&CStr; 8] = [
        c"cuInit",
        c"cuDeviceGetCount",
        c"cuDeviceGet",
        c"cuDeviceGetUuid_v2",
        c"cuDeviceGetAttribute",
        c"cuMemCreate",
        c"cuMemExportToShareableHandle",
        c"cuMemRelease",
    ];
    // SAFETY: a NUL-terminated name; the library stays loaded for as long as the binding holds it.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY) };
    if library.is_null() {
        return None; // The binding says so.
    }
    // SAFETY: a live library and NUL-terminated names; what is found is not called through these pointers.
    let missing = CALLED.iter().find(|name| unsafe { libc::dlsym(library, name.as_ptr()) }.is_null());
    missing.and_then(|name| name.to_str().ok())
}

/// The NUMA node whose memory is nearest to a card; `None` where the driver knows none.
fn numa_node_of(device: i32) -> Option<i32> {
    let attribute = sys::CUdevice_attribute_enum::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID;
    let mut node = -1;
    // SAFETY: the out-pointer outlives the call, and the device is one that the driver named.
    let asked = unsafe { sys::cuDeviceGetAttribute(&raw mut node, attribute, device) };
    (refused(asked).is_ok() && node >= 0).then_some(node)
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
        let location = match self.places.get(donor.0) {
            None | Some(Place::Card { ordinal: None, .. }) => return Err(NO_SUCH_CARD),
            Some(Place::Card { ordinal: Some(ordinal), .. }) => sys::CUmemLocation {
                type_: sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE,
                id: *ordinal,
            },
            Some(Place::Host { numa_node }) => sys::CUmemLocation {
                type_: sys::CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_HOST_NUMA,
                id: *numa_node,
            },
        };
        let size = usize::try_from(bytes).map_err(|_| NO_SUCH_CARD)?;
        let prop = sys::CUmemAllocationProp {
            type_: sys::CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes:
                sys::CUmemAllocationHandleType_enum::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
            location,
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
        self.kept[donor.0] += bytes;
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
        matches!(self.places.get(donor.0), Some(Place::Card { rdma: true, .. }))
    }

    fn inherit(&mut self, donor: Donor, bytes: u64) {
        if let Some(kept) = self.kept.get_mut(donor.0) {
            *kept += bytes;
        }
    }

    fn returned(&mut self, donor: Donor, bytes: u64) {
        if let Some(kept) = self.kept.get_mut(donor.0) {
            *kept = kept.saturating_sub(bytes);
        }
    }

    fn makes_ahead(&self, donor: Donor) -> bool {
        matches!(self.places.get(donor.0), Some(Place::Card { .. }))
    }

    fn release(&mut self, handle: Chunk) {
        // SAFETY: the handle came from `create` and is consumed here.
        if let Err(refusal) = refused(unsafe { sys::cuMemRelease(handle.handle) }) {
            tracing::warn!(
                code = refusal.code,
                "the driver refused to release a chunk; it stays quarantined"
            );
        } else {
            // Saturating: of the host's memory a process's word counts, too (see `returned`).
            let kept = &mut self.kept[handle.donor.0];
            *kept = kept.saturating_sub(handle.bytes);
        }
    }

    fn used_bytes(&mut self, donor: Donor) -> Option<u64> {
        let uuid = match self.places.get(donor.0)? {
            // Nothing is lent there, and that it is not there has been said.
            Place::Card { ordinal: None, .. } => return None,
            Place::Card { uuid, .. } if !self.trial => uuid,
            Place::Card { .. } | Place::Host { .. } => return self.kept.get(donor.0).copied(),
        };
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
