//! Initialisation and device handles. A handle is a card's number in disguise; cards whose device node cannot be opened do
//! not exist here, and a lost card answers that it is lost.

use std::ffi::c_void;
use std::fs::OpenOptions;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tarn_sim::Host;
use tarn_sim::machine::Gpu;

use crate::entry::{Outcome, Return};

/// An opaque `nvmlDevice_t`.
pub type DeviceHandle = usize;

const HANDLE_BASE: usize = 0x6e76_0000;
const HANDLE_STEP: usize = 0x40;
const HANG_STEP: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
struct Session {
    initialised: u32,
    host: Option<Arc<Host>>,
}

static SESSION: RwLock<Session> = RwLock::new(Session { initialised: 0, host: None });

fn start() -> Outcome {
    let mut session = SESSION.write().unwrap_or_else(PoisonError::into_inner);
    if session.host.is_none() {
        let directory = tarn_sim::locate::host_directory((&raw const SESSION).cast::<c_void>());
        let host =
            directory.and_then(|directory| Host::open(&directory).ok()).ok_or(Return::DRIVER_NOT_LOADED)?;
        session.host = Some(Arc::new(host));
    }
    session.initialised += 1;
    Ok(())
}

pub(crate) fn host() -> Result<Arc<Host>, Return> {
    let session = SESSION.read().unwrap_or_else(PoisonError::into_inner);
    session.host.clone().filter(|_| session.initialised > 0).ok_or(Return::UNINITIALIZED)
}

/// Cards that this process can see, in order.
pub(crate) fn present(host: &Host) -> Vec<usize> {
    let opens =
        |card: &usize| OpenOptions::new().read(true).write(true).open(host.device_node(*card)).is_ok();
    (0..host.gpus().len()).filter(opens).collect()
}

pub(crate) fn handle_of(card: usize) -> DeviceHandle {
    HANDLE_BASE + (card + 1) * HANDLE_STEP
}

/// A card, as a call about it finds it.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) host: Arc<Host>,
    pub(crate) card: usize,
}

impl Device {
    pub(crate) fn gpu(&self) -> &Gpu {
        &self.host.gpus()[self.card]
    }
}

/// The card behind a handle. Hangs here when the card's calls hang; fails when it is lost.
pub(crate) fn device(handle: DeviceHandle) -> Result<Device, Return> {
    let host = host()?;
    let number = handle.checked_sub(HANDLE_BASE).filter(|offset| offset % HANDLE_STEP == 0);
    let card = number.and_then(|offset| (offset / HANDLE_STEP).checked_sub(1));
    let card = card.filter(|card| *card < host.gpus().len()).ok_or(Return::INVALID_ARGUMENT)?;
    responsive(&host, card)?;
    Ok(Device { host, card })
}

/// Waits out a hang (until the fault is cleared, if that is sooner), then says whether the card is there.
fn responsive(host: &Host, card: usize) -> Outcome {
    let mut waited = Duration::ZERO;
    loop {
        let (hang_ms, lost) = {
            let state = host.state().map_err(|_| Return::UNKNOWN)?;
            (state.gpus[card].hung_nvml_ms, state.gpus[card].lost)
        };
        if waited >= Duration::from_millis(hang_ms.into()) {
            return if lost == 0 { Ok(()) } else { Err(Return::GPU_IS_LOST) };
        }
        std::thread::sleep(HANG_STEP);
        waited += HANG_STEP;
    }
}

/// The handle for a card that a search found.
pub(crate) fn found(host: &Host, card: Option<usize>) -> Result<DeviceHandle, Return> {
    let card = card.filter(|card| present(host).contains(card)).ok_or(Return::NOT_FOUND)?;
    responsive(host, card)?;
    Ok(handle_of(card))
}

nvml_api! {
    [nvmlInit] fn nvmlInit_v2() { start() }
    fn nvmlInitWithFlags(_flags: u32) { start() }
    fn nvmlShutdown() {
        let mut session = SESSION.write().unwrap_or_else(PoisonError::into_inner);
        session.initialised = session.initialised.checked_sub(1).ok_or(Return::UNINITIALIZED)?;
        Ok(())
    }
}
