//! Physical memory of one card behind a generic handle: a sparse memory file and the process's hold in the host's ledger.
//! Handles and mappings share it; the last of them in this process lets go.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use tarn_sim::ledger::{Hold, LedgerError};
use tarn_sim::lingering::{MemoryName, host_memory_name, is_host_memory};

use crate::code::Code;
use crate::driver::{Driver, driver};

#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) place: Place,
    pub(crate) bytes: u64,
    /// The handle types asked for at creation.
    pub(crate) handle_types: i32,
    /// Created for network cards to reach.
    pub(crate) rdma: u8,
    file: OwnedFd,
    hold: Option<Hold>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Host,
    Card(usize),
}

impl Memory {
    pub(crate) fn create(
        driver: &Driver,
        card: usize,
        bytes: u64,
        handle_types: i32,
        rdma: u8,
    ) -> Result<Self, Code> {
        delay_allocation(driver, card)?;
        let (hold, dirty) = with_room(driver, |state| {
            let hold = state.create(driver.holder(), card, bytes)?;
            Ok((hold, state.take_dirt(card, bytes)))
        })?;
        let name = MemoryName { host: driver.attached.host().id(), gpu: card, id: hold.id };
        match memory_file(&name.text(), bytes) {
            Ok(file) => {
                if dirty {
                    soil(&file, bytes)?;
                }
                Ok(Self { place: Place::Card(card), bytes, handle_types, rdma, file, hold: Some(hold) })
            }
            Err(code) => {
                driver.state()?.let_go(driver.holder(), hold);
                Err(code)
            }
        }
    }

    /// Host memory costs no card anything.
    pub(crate) fn create_on_host(driver: &Driver, bytes: u64, handle_types: i32) -> Result<Self, Code> {
        let file = memory_file(&host_memory_name(driver.attached.host().id()), bytes)?;
        Ok(Self { place: Place::Host, bytes, handle_types, rdma: 0, file, hold: None })
    }

    /// Takes hold of what another process exported. The caller keeps its descriptor. Of what the memory was created for, driver
    /// 580 tells an importer nothing: no handle types, no reach for network cards.
    pub(crate) fn import(driver: &Driver, descriptor: i32) -> Result<Self, Code> {
        let link =
            std::fs::read_link(format!("/proc/self/fd/{descriptor}")).map_err(|_| Code::INVALID_VALUE)?;
        let length = || -> Result<u64, Code> {
            let metadata = std::fs::File::from(duplicate(descriptor)?).metadata();
            Ok(metadata.map_err(|_| Code::INVALID_VALUE)?.len())
        };
        if link.to_str().is_some_and(|link| is_host_memory(link, driver.attached.host().id())) {
            let (file, bytes) = (duplicate(descriptor)?, length()?);
            return Ok(Self { place: Place::Host, bytes, handle_types: 0, rdma: 0, file, hold: None });
        }
        let named = link.to_str().and_then(MemoryName::parse);
        let own = |name: &MemoryName| {
            name.host == driver.attached.host().id() && name.gpu < driver.machine().gpus.len()
        };
        let MemoryName { gpu: card, id, .. } = named.filter(own).ok_or(Code::INVALID_VALUE)?;
        if !crate::visibility::node_opens(driver.attached.host(), card) {
            return Err(Code::INVALID_DEVICE);
        }
        let (file, bytes) = (duplicate(descriptor)?, length()?);
        let hold = driver.state()?.import(driver.holder(), card, bytes, id).map_err(ledger_code)?;
        Ok(Self { place: Place::Card(card), bytes, handle_types: 0, rdma: 0, file, hold: Some(hold) })
    }

    /// A descriptor for another process; whoever has it keeps the bytes.
    pub(crate) fn export(&self, driver: &Driver) -> Result<OwnedFd, Code> {
        let copy = duplicate(self.file.as_raw_fd())?;
        if let Some(hold) = self.hold {
            driver.state()?.mark_exported(hold);
        }
        Ok(copy)
    }

    /// Notes that all of it is zero, or that something was written.
    pub(crate) fn mark_clean(&self, driver: &Driver, clean: bool) -> Result<(), Code> {
        if let Some(hold) = self.hold {
            driver.state()?.mark_clean(hold, clean);
        }
        Ok(())
    }

    pub(crate) fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

/// What a former tenant left, at the start of an allocation: enough to be found, little enough for this machine.
pub(crate) static SOIL: [u8; 64 << 10] = [0xA5; 64 << 10];

fn soil(file: &OwnedFd, bytes: u64) -> Result<(), Code> {
    use std::os::unix::fs::FileExt;
    let length = SOIL.len().min(usize::try_from(bytes).unwrap_or(0));
    let file = std::fs::File::from(duplicate(file.as_raw_fd())?);
    file.write_all_at(&SOIL[..length], 0).map_err(|_| Code::OPERATING_SYSTEM)
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(hold) = self.hold
            && let Ok(driver) = driver()
            && let Ok(mut state) = driver.state()
        {
            state.let_go(driver.holder(), hold);
        }
    }
}

/// Runs a charge; a full card is looked at again after what dead processes held is gone.
pub(crate) fn with_room<T>(
    driver: &Driver,
    mut charge: impl FnMut(&mut tarn_sim::layout::State) -> Result<T, LedgerError>,
) -> Result<T, Code> {
    let first = charge(&mut *driver.state()?);
    match first {
        Err(LedgerError::OutOfMemory) => {
            charge(&mut *driver.attached.swept().map_err(|_| Code::UNKNOWN)?).map_err(ledger_code)
        }
        other => other.map_err(ledger_code),
    }
}

/// The slow-allocation fault, waited for outside every lock.
pub(crate) fn delay_allocation(driver: &Driver, card: usize) -> Result<(), Code> {
    let (delay, lost) = {
        let state = driver.state()?;
        (state.gpus[card].slow_allocation_ms, state.gpus[card].lost)
    };
    if lost != 0 {
        return Err(Code::LAUNCH_FAILED);
    }
    if delay > 0 {
        std::thread::sleep(std::time::Duration::from_millis(delay.into()));
    }
    Ok(())
}

fn ledger_code(_full: LedgerError) -> Code {
    Code::OUT_OF_MEMORY
}

pub(crate) fn memory_file(name: &str, bytes: u64) -> Result<OwnedFd, Code> {
    let name = CString::new(name).map_err(|_| Code::UNKNOWN)?;
    // SAFETY: the name is a C string.
    let descriptor = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 {
        return Err(Code::OUT_OF_MEMORY);
    }
    // SAFETY: the kernel just gave us this descriptor.
    let file = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let length = libc::off_t::try_from(bytes).map_err(|_| Code::INVALID_VALUE)?;
    // SAFETY: a descriptor of ours.
    if unsafe { libc::ftruncate(file.as_raw_fd(), length) } != 0 {
        return Err(Code::OUT_OF_MEMORY);
    }
    Ok(file)
}

fn duplicate(descriptor: i32) -> Result<OwnedFd, Code> {
    // SAFETY: duplicating any number is safe; a bad one is refused.
    let copy = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    // SAFETY: the kernel just gave us this descriptor.
    if copy < 0 { Err(Code::INVALID_VALUE) } else { Ok(unsafe { OwnedFd::from_raw_fd(copy) }) }
}
