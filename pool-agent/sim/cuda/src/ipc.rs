//! Legacy IPC: 64-byte handles for native blocks. Memory from the virtual memory interface is refused, as on hardware.

use crate::address_space::{Block, BlockKind};
use crate::code::{Code, Outcome};
use crate::context::current;
use crate::driver::driver;
use crate::entry::put;
use crate::native::fresh_id;

const MARK: u64 = u64::from_le_bytes(*b"tarn-ipc");

/// `CUipcMemHandle`: where the exporting process keeps the block.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct IpcHandle {
    mark: u64,
    pid: u32,
    descriptor: i32,
    offset: u64,
    bytes: u64,
    card: u32,
    pad: [u32; 7],
}

fn export(address: u64) -> Result<IpcHandle, Code> {
    let driver = driver()?;
    current(driver)?;
    let block = driver.space().blocks.get(&address).copied().filter(|block| block.kind == BlockKind::Plain);
    let block = block.ok_or(Code::INVALID_VALUE)?;
    let mut arenas = driver.arenas();
    let arena = arenas.of(block.card, driver.machine().gpus[block.card].memory_bytes)?;
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&arena.file);
    let (offset, bytes) = (address - arena.base, block.bytes);
    let card = u32::try_from(block.card).map_err(|_| Code::UNKNOWN)?;
    Ok(IpcHandle { mark: MARK, pid: std::process::id(), descriptor, offset, bytes, card, pad: [0; 7] })
}

fn open(handle: &IpcHandle) -> Result<u64, Code> {
    let driver = driver()?;
    let here = current(driver)?;
    if handle.mark != MARK || handle.pid == std::process::id() {
        return Err(Code::INVALID_VALUE);
    }
    let path = format!("/proc/{}/fd/{}", handle.pid, handle.descriptor);
    let file = std::fs::File::options().read(true).write(true).open(path).map_err(|_| Code::INVALID_VALUE)?;
    let page = handle.offset / 4096 * 4096;
    let length = usize::try_from(handle.offset - page + handle.bytes).map_err(|_| Code::INVALID_VALUE)?;
    let page = libc::off_t::try_from(page).map_err(|_| Code::INVALID_VALUE)?;
    // SAFETY: a new shared mapping of the exporter's memory, at an address the kernel picks.
    let base = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file);
        libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, descriptor, page)
    };
    if base == libc::MAP_FAILED {
        return Err(Code::INVALID_VALUE);
    }
    let address = base as u64 + handle.offset % 4096;
    let kind = BlockKind::Opened;
    let block = Block {
        bytes: handle.bytes,
        charged: 0,
        card: handle.card as usize,
        context: here.id,
        kind,
        id: fresh_id(),
    };
    driver.space().blocks.insert(address, block);
    Ok(address)
}

fn close(address: u64) -> Outcome {
    let driver = driver()?;
    let mut space = driver.space();
    let block = space.blocks.get(&address).filter(|block| block.kind == BlockKind::Opened).copied();
    let block = block.ok_or(Code::INVALID_VALUE)?;
    space.blocks.remove(&address);
    let page = address / 4096 * 4096;
    // SAFETY: the mapping was made by `open` and its entry is gone.
    unsafe {
        libc::munmap(page as *mut libc::c_void, usize::try_from(address - page + block.bytes).unwrap_or(0))
    };
    Ok(())
}

driver_api! {
    ["cuIpcGetMemHandle" 4010] fn cuIpcGetMemHandle(handle: *mut IpcHandle, address: u64) {
        if handle.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        put(handle, export(address)?)
    }
    ["cuIpcOpenMemHandle" 11000] fn cuIpcOpenMemHandle_v2(address: *mut u64, handle: IpcHandle, _flags: u32) {
        if address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        put(address, open(&handle)?)
    }
    ["cuIpcOpenMemHandle" 4010] fn cuIpcOpenMemHandle(address: *mut u64, handle: IpcHandle, _flags: u32) {
        if address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        put(address, open(&handle)?)
    }
    ["cuIpcCloseMemHandle" 4010] fn cuIpcCloseMemHandle(address: u64) { close(address) }
    ["cuIpcGetEventHandle" 4010] fn cuIpcGetEventHandle(_handle: *mut IpcHandle, _event: usize) {
        driver()?;
        Err(Code::NOT_SUPPORTED)
    }
    ["cuIpcOpenEventHandle" 4010] fn cuIpcOpenEventHandle(_event: *mut usize, _handle: IpcHandle) {
        driver()?;
        Err(Code::NOT_SUPPORTED)
    }
}
