//! The process's driver: made by `cuInit`, alive until the process ends, unusable in a forked child.

use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tarn_sim::host::Attached;
use tarn_sim::machine::Machine;
use tarn_sim::state::StateGuard;

use crate::address_space::AddressSpace;
use crate::code::Code;
use crate::context::Contexts;
use crate::entry::put;
use crate::event::Event;
use crate::memory::Memory;
use crate::module::Modules;
use crate::native_arena::Arenas;
use crate::pools::Pools;
use crate::stream::Stream;

pub(crate) struct Driver {
    pub(crate) attached: Attached,
    /// Card by ordinal.
    pub(crate) visible: Vec<usize>,
    space: Mutex<AddressSpace>,
    arenas: Mutex<Arenas>,
    contexts: Mutex<Contexts>,
    streams: Mutex<HashMap<usize, Stream>>,
    events: Mutex<HashMap<usize, Event>>,
    modules: Mutex<Modules>,
    pools: Mutex<Pools>,
    /// Generic allocation handles; a handle retained twice is one entry with a count.
    handles: Mutex<HashMap<u64, (Arc<Memory>, u32)>>,
}

static DRIVER: OnceLock<Result<Driver, Code>> = OnceLock::new();

fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Driver {
    fn start() -> Result<Self, Code> {
        let directory = tarn_sim::locate::host_directory((&raw const DRIVER).cast::<c_void>());
        let attached = directory.and_then(|directory| Attached::attach(&directory).ok());
        let attached = attached.ok_or(Code::NO_DEVICE)?;
        // SAFETY: the name is a C string; programs that set the variable while they initialise race on hardware too.
        let variable = unsafe { libc::getenv(c"CUDA_VISIBLE_DEVICES".as_ptr()) };
        // SAFETY: getenv answered a C string.
        let variable = (!variable.is_null()).then(|| unsafe { CStr::from_ptr(variable) }.to_string_lossy());
        let visible = crate::visibility::visible_cards(attached.host(), variable.as_deref());
        if visible.is_empty() {
            return Err(Code::NO_DEVICE);
        }
        raise_descriptor_limit();
        let cards = attached.machine().gpus.len();
        Ok(Self {
            attached,
            visible,
            space: Mutex::default(),
            arenas: Mutex::new(Arenas::new(cards)),
            contexts: Mutex::default(),
            streams: Mutex::default(),
            events: Mutex::default(),
            modules: Mutex::default(),
            pools: Mutex::default(),
            handles: Mutex::default(),
        })
    }

    pub(crate) fn machine(&self) -> &Machine {
        self.attached.machine()
    }

    pub(crate) fn state(&self) -> Result<StateGuard<'_>, Code> {
        self.attached.state().map_err(|_| Code::UNKNOWN)
    }

    pub(crate) fn holder(&self) -> usize {
        self.attached.holder()
    }

    /// The card behind an ordinal.
    pub(crate) fn card(&self, ordinal: i32) -> Result<usize, Code> {
        let ordinal = usize::try_from(ordinal).map_err(|_| Code::INVALID_DEVICE)?;
        self.visible.get(ordinal).copied().ok_or(Code::INVALID_DEVICE)
    }

    /// The ordinal of a card; `None` when the process does not see it.
    pub(crate) fn ordinal(&self, card: usize) -> Option<i32> {
        self.visible.iter().position(|visible| *visible == card).and_then(|at| i32::try_from(at).ok())
    }

    pub(crate) fn space(&self) -> MutexGuard<'_, AddressSpace> {
        hold(&self.space)
    }

    pub(crate) fn arenas(&self) -> MutexGuard<'_, Arenas> {
        hold(&self.arenas)
    }

    pub(crate) fn contexts(&self) -> MutexGuard<'_, Contexts> {
        hold(&self.contexts)
    }

    pub(crate) fn streams(&self) -> MutexGuard<'_, HashMap<usize, Stream>> {
        hold(&self.streams)
    }

    pub(crate) fn events(&self) -> MutexGuard<'_, HashMap<usize, Event>> {
        hold(&self.events)
    }

    pub(crate) fn modules(&self) -> MutexGuard<'_, Modules> {
        hold(&self.modules)
    }

    pub(crate) fn pools(&self) -> MutexGuard<'_, Pools> {
        hold(&self.pools)
    }

    pub(crate) fn handles(&self) -> MutexGuard<'_, HashMap<u64, (Arc<Memory>, u32)>> {
        hold(&self.handles)
    }
}

/// The driver, once `cuInit` has succeeded in this process.
pub(crate) fn driver() -> Result<&'static Driver, Code> {
    let started = DRIVER.get().ok_or(Code::NOT_INITIALIZED)?;
    let driver = started.as_ref().map_err(|_| Code::NOT_INITIALIZED)?;
    if driver.attached.own_process() { Ok(driver) } else { Err(Code::NOT_INITIALIZED) }
}

/// Each exportable handle costs a descriptor here and none on hardware, so the soft limit must not be what runs out.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

driver_api! {
    ["cuInit" 2000] fn cuInit(flags: u32) {
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        match DRIVER.get_or_init(Driver::start) {
            Ok(_) => driver().map(|_| ()),
            Err(code) => Err(*code),
        }
    }
    ["cuDriverGetVersion" 2020] fn cuDriverGetVersion(version: *mut i32) {
        // Answers before cuInit as well, so the description is read afresh then.
        if let Ok(driver) = driver() {
            return put(version, driver.machine().cuda_version);
        }
        let directory = tarn_sim::locate::host_directory((&raw const DRIVER).cast::<c_void>());
        let host = directory.and_then(|directory| tarn_sim::Host::open(&directory).ok()).ok_or(Code::NO_DEVICE)?;
        put(version, host.machine().cuda_version)
    }
}
