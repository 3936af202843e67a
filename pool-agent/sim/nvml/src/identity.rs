//! Which cards there are and what they are called.

use std::ffi::{CStr, c_char};

use crate::entry::{Return, put, put_text, text_array};
use crate::session::{DeviceHandle, device, found, host, present};

/// `nvmlPciInfo_t`, third form.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: u32,
    bus: u32,
    device: u32,
    device_id: u32,
    subsystem_id: u32,
    bus_id: [c_char; 32],
}

impl PciInfo {
    pub(crate) fn of(pci: &str, numbers: (u32, u32, u32), device_id: u32, subsystem_id: u32) -> Self {
        let (domain, bus, device) = numbers;
        let upper = pci.to_uppercase();
        let long = format!("0000{upper}");
        Self {
            bus_id_legacy: text_array(&upper),
            domain,
            bus,
            device,
            device_id,
            subsystem_id,
            bus_id: text_array(&long),
        }
    }
}

pub(crate) fn pci_info(host: &tarn_sim::Host, card: usize) -> PciInfo {
    let spec = &host.machine().card;
    let number = |text: &str| u32::from_str_radix(text, 16).unwrap_or(0);
    let ids = |id: &str| number(id) << 16 | 0x10de;
    let gpu = &host.gpus()[card];
    PciInfo::of(&gpu.pci, gpu.pci_numbers(), ids(&spec.device_id), ids(&spec.subsystem_id))
}

/// # Safety
/// `text` is NULL or a C string.
unsafe fn asked(text: *const c_char) -> Result<String, Return> {
    if text.is_null() {
        return Err(Return::INVALID_ARGUMENT);
    }
    // SAFETY: not NULL, and the caller vouches for the rest.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

nvml_api! {
    [nvmlDeviceGetCount] fn nvmlDeviceGetCount_v2(count: *mut u32) {
        put(count, u32::try_from(present(&*host()?).len()).map_err(|_| Return::UNKNOWN)?)
    }
    [nvmlDeviceGetHandleByIndex] fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: *mut DeviceHandle) {
        let host = host()?;
        let card = present(&host).get(index as usize).copied().ok_or(Return::INVALID_ARGUMENT)?;
        if device.is_null() {
            return Err(Return::INVALID_ARGUMENT);
        }
        put(device, found(&host, Some(card))?)
    }
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut DeviceHandle) {
        let (host, uuid) = (host()?, asked(uuid)?);
        put(device, found(&host, host.machine().by_uuid(&uuid))?)
    }
    fn nvmlDeviceGetHandleBySerial(serial: *const c_char, device: *mut DeviceHandle) {
        let (host, serial) = (host()?, asked(serial)?);
        put(device, found(&host, host.gpus().iter().position(|gpu| gpu.serial == serial))?)
    }
    [nvmlDeviceGetHandleByPciBusId] fn nvmlDeviceGetHandleByPciBusId_v2(
        bus_id: *const c_char, device: *mut DeviceHandle,
    ) {
        let (host, wanted) = (host()?, asked(bus_id)?.to_lowercase());
        let named = |pci: &str| pci == wanted || wanted.len() >= 7 && (wanted.ends_with(pci) || pci.ends_with(&wanted));
        put(device, found(&host, host.gpus().iter().position(|gpu| named(&gpu.pci)))?)
    }
    fn nvmlDeviceGetName(handle: DeviceHandle, name: *mut c_char, length: u32) {
        put_text(name, length, &device(handle)?.host.machine().card.name)
    }
    fn nvmlDeviceGetUUID(handle: DeviceHandle, uuid: *mut c_char, length: u32) {
        put_text(uuid, length, &device(handle)?.gpu().uuid)
    }
    fn nvmlDeviceGetSerial(handle: DeviceHandle, serial: *mut c_char, length: u32) {
        put_text(serial, length, &device(handle)?.gpu().serial)
    }
    fn nvmlDeviceGetIndex(handle: DeviceHandle, index: *mut u32) {
        let device = device(handle)?;
        let at = present(&device.host).iter().position(|card| *card == device.card).ok_or(Return::NOT_FOUND)?;
        put(index, u32::try_from(at).map_err(|_| Return::UNKNOWN)?)
    }
    fn nvmlDeviceGetMinorNumber(handle: DeviceHandle, minor: *mut u32) {
        put(minor, u32::try_from(device(handle)?.card).map_err(|_| Return::UNKNOWN)?)
    }
    [nvmlDeviceGetPciInfo_v2 nvmlDeviceGetPciInfo] fn nvmlDeviceGetPciInfo_v3(
        handle: DeviceHandle, pci: *mut PciInfo,
    ) {
        let device = device(handle)?;
        put(pci, pci_info(&device.host, device.card))
    }
    fn nvmlDeviceGetBrand(handle: DeviceHandle, brand: *mut u32) {
        let consumer = device(handle)?.host.machine().card.name.contains("GeForce");
        put(brand, if consumer { 5 } else { 14 })
    }
    fn nvmlDeviceGetCudaComputeCapability(handle: DeviceHandle, major: *mut i32, minor: *mut i32) {
        let [high, low] = device(handle)?.host.machine().card.compute_capability;
        put(major, high.cast_signed())?;
        put(minor, low.cast_signed())
    }
    fn nvmlDeviceGetArchitecture(handle: DeviceHandle, architecture: *mut u32) {
        let device = device(handle)?;
        let number = match device.host.machine().card.architecture.as_str() {
            "turing" => 6,
            "ampere" => 7,
            "ada" => 8,
            "hopper" => 9,
            "blackwell" => 10,
            _ => u32::MAX,
        };
        put(architecture, number)
    }
    fn nvmlDeviceGetNumGpuCores(handle: DeviceHandle, cores: *mut u32) {
        put(cores, device(handle)?.host.machine().card.multiprocessors * 128)
    }
    fn nvmlDeviceGetBoardId(handle: DeviceHandle, board: *mut u32) {
        let (_, bus, _) = device(handle)?.gpu().pci_numbers();
        put(board, bus << 8)
    }
    fn nvmlDeviceGetVbiosVersion(handle: DeviceHandle, version: *mut c_char, length: u32) {
        device(handle)?;
        put_text(version, length, "95.02.18.00.01")
    }
    fn nvmlDeviceGetMultiGpuBoard(handle: DeviceHandle, multi: *mut u32) {
        device(handle)?;
        put(multi, 0)
    }
}
