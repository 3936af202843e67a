//! A host directory: made once, opened by tools and tests through [`Host`], by the driver libraries through [`Attached`].

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::fault::{Fault, FaultError};
use crate::holder::Liveness;
use crate::layout::State;
use crate::lingering::open_serials;
use crate::machine::{Gpu, Machine};
use crate::preset::{Preset, PresetError};
use crate::state::{SharedState, StateError, StateGuard};

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error(transparent)]
    Preset(#[from] PresetError),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Fault(#[from] FaultError),
    #[error("{0:?} is missing: run `make build` first")]
    Artefact(PathBuf),
    #[error("{0:?} cannot be written or read")]
    File(PathBuf, #[source] std::io::Error),
    #[error("{0:?} is not a host description")]
    Document(PathBuf, #[source] serde_json::Error),
    #[error("the host's table of processes is full")]
    HoldersFull,
}

/// What each artefact is called in a host's `lib/`.
const LIBRARIES: [(&str, &str); 2] =
    [("libtarn_sim_cuda.so", "libcuda.so.1"), ("libtarn_sim_nvml.so", "libnvidia-ml.so.1")];

/// Up to so many processes are looked at every time.
const CROWD: usize = 64;
const SWEEP_INTERVAL_MS: u64 = 10;

/// A host, seen from outside: no process of it, holds nothing on it.
#[derive(Debug, Clone)]
pub struct Host {
    directory: PathBuf,
    machine: Arc<Machine>,
    shared: Arc<SharedState>,
    liveness: Arc<Liveness>,
    id: u64,
}

impl Host {
    /// Makes `directory` a host. `artefacts` is where the built driver libraries lie (a cargo target directory).
    pub fn create(directory: &Path, preset: &str, seed: u64, artefacts: &Path) -> Result<Self, HostError> {
        let machine = Machine::resolve(&Preset::load(preset)?, seed);
        let file = |path: &Path, error| HostError::File(path.to_owned(), error);
        for part in ["lib", "dev"] {
            let path = directory.join(part);
            std::fs::create_dir_all(&path).map_err(|error| file(&path, error))?;
        }
        let directory = directory.canonicalize().map_err(|error| file(directory, error))?;
        for (artefact, name) in LIBRARIES {
            place_library(&artefacts.join(artefact), &directory.join("lib").join(name), &directory)?;
        }
        for name in ["nvidiactl", "nvidia-uvm"] {
            write(&directory.join("dev").join(name), b"")?;
        }
        for gpu in &machine.gpus {
            write(&directory.join("dev").join(format!("nvidia{}", gpu.index)), b"")?;
        }
        write(&directory.join("holders"), b"")?;
        let capacities: Vec<u64> =
            machine.gpus.iter().map(|gpu| gpu.memory_bytes - gpu.reserved_bytes).collect();
        let state = directory.join("state");
        let _absent_is_fine = std::fs::remove_file(&state);
        drop(SharedState::create(&state, &capacities)?);
        open_to_all(&state)?;
        let document = serde_json::to_vec_pretty(&machine)
            .map_err(|error| HostError::Document(directory.join("host.json"), error))?;
        write(&directory.join("host.json"), &document)?;
        Self::open(&directory)
    }

    pub fn open(directory: &Path) -> Result<Self, HostError> {
        let path = directory.join("host.json");
        let text = std::fs::read(&path).map_err(|error| HostError::File(path.clone(), error))?;
        let machine = serde_json::from_slice(&text).map_err(|error| HostError::Document(path, error))?;
        let shared = SharedState::open(&directory.join("state"))?;
        let liveness =
            Liveness::open(directory).map_err(|error| HostError::File(directory.join("holders"), error))?;
        Ok(Self {
            directory: directory.to_owned(),
            machine: Arc::new(machine),
            shared: Arc::new(shared),
            liveness,
            id: identity(directory)?,
        })
    }

    /// Tells this host's memory from that of other hosts on the machine.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The directory for `LD_LIBRARY_PATH` and `--driver-dir`.
    pub fn lib_dir(&self) -> PathBuf {
        self.directory.join("lib")
    }

    /// The file that stands for a card's device node; a process that cannot open it does not see the card.
    pub fn device_node(&self, gpu: usize) -> PathBuf {
        self.directory.join("dev").join(format!("nvidia{gpu}"))
    }

    /// Whether `cuMemGetAddressRange` answers a stitched range's whole reservation, as some drivers do, instead of one segment.
    pub fn whole_address_ranges(&self) -> bool {
        self.machine.whole_address_ranges
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    pub fn gpus(&self) -> &[Gpu] {
        &self.machine.gpus
    }

    /// Bytes in use on a card, the driver's own reserve apart; `None` for a foreign UUID.
    pub fn used_bytes(&self, uuid: &str) -> Result<Option<u64>, HostError> {
        let Some(gpu) = self.machine.by_uuid(uuid) else { return Ok(None) };
        Ok(Some(self.swept(None)?.gpus[gpu].used_bytes))
    }

    /// Pids and bytes of the processes with a context on a card.
    pub fn processes(&self, gpu: usize) -> Result<Vec<(u32, u64)>, HostError> {
        Ok(self.processes_in(&*self.swept(None)?, gpu))
    }

    fn processes_in(&self, state: &State, gpu: usize) -> Vec<(u32, u64)> {
        let slots = 0..state.holders_high as usize;
        slots
            .filter_map(|slot| {
                let bytes = state.process_bytes(slot, gpu)?;
                Some((self.liveness.visible_pid(&state.holders[slot], slot)?, bytes))
            })
            .collect()
    }

    pub fn fault(&self, fault: Fault) -> Result<(), HostError> {
        Ok(fault.apply(&mut *self.shared.lock()?, self.machine.gpus.len())?)
    }

    /// The state as it is, without looking for dead processes.
    pub fn state(&self) -> Result<StateGuard<'_>, HostError> {
        Ok(self.shared.lock()?)
    }

    /// As [`Self::swept`], at most every few milliseconds once many processes share the host: each look costs a read of
    /// `/proc` per process.
    pub fn swept_lately(&self, own: Option<usize>) -> Result<StateGuard<'_>, HostError> {
        let now_ms = monotonic_ms();
        {
            let state = self.shared.lock()?;
            let crowded = state.holders_high as usize > CROWD;
            if crowded && now_ms.saturating_sub(state.swept_ms) < SWEEP_INTERVAL_MS {
                return Ok(state);
            }
        }
        let mut state = self.swept(own)?;
        state.swept_ms = now_ms;
        Ok(state)
    }

    /// The state after everything that dead processes held is gone.
    pub fn swept(&self, own: Option<usize>) -> Result<StateGuard<'_>, HostError> {
        let mut state = self.shared.lock()?;
        self.liveness.sweep(&mut state, own);
        if state.lingering > 0 {
            let open = open_serials(self.id);
            state.drop_lingering(|serial| open.contains(&serial));
        }
        Ok(state)
    }
}

/// A host, seen from a process that uses its cards.
#[derive(Debug)]
pub struct Attached {
    host: Host,
    holder: usize,
    pid: u32,
}

impl Attached {
    pub fn attach(directory: &Path) -> Result<Self, HostError> {
        let host = Host::open(directory)?;
        let holder = host.liveness.register(&mut *host.shared.lock()?).ok_or(HostError::HoldersFull)?;
        Ok(Self { host, holder, pid: std::process::id() })
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    pub fn machine(&self) -> &Machine {
        &self.host.machine
    }

    pub fn holder(&self) -> usize {
        self.holder
    }

    /// Whether this is still the process that attached, and not a forked child of it.
    pub fn own_process(&self) -> bool {
        std::process::id() == self.pid
    }

    pub fn state(&self) -> Result<StateGuard<'_>, StateError> {
        self.host.shared.lock()
    }

    pub fn swept(&self) -> Result<StateGuard<'_>, HostError> {
        self.host.swept(Some(self.holder))
    }

    pub fn swept_lately(&self) -> Result<StateGuard<'_>, HostError> {
        self.host.swept_lately(Some(self.holder))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.own_process()
            && let Ok(mut state) = self.state()
        {
            state.drop_holder(self.holder);
        }
    }
}

/// The state file itself: two hosts never share one.
fn identity(directory: &Path) -> Result<u64, HostError> {
    let path = directory.join("state");
    let meta = std::fs::metadata(&path).map_err(|error| HostError::File(path, error))?;
    Ok(meta.ino() ^ meta.dev().rotate_left(40))
}

fn monotonic_ms() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the out-parameter outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

fn place_library(artefact: &Path, target: &Path, directory: &Path) -> Result<(), HostError> {
    let mut bytes = std::fs::read(artefact).map_err(|_| HostError::Artefact(artefact.to_owned()))?;
    bytes.extend(crate::locate::trailer_bytes(directory));
    // Written beside and renamed: a process may have the old one mapped.
    let fresh = target.with_extension("new");
    write(&fresh, &bytes)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o755))
        .and_then(|()| std::fs::rename(&fresh, target))
        .map_err(|error| HostError::File(target.to_owned(), error))
}

/// Tenants run as other users and still reach their cards, as they do through real device nodes.
fn open_to_all(path: &Path) -> Result<(), HostError> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
        .map_err(|error| HostError::File(path.to_owned(), error))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), HostError> {
    std::fs::write(path, bytes).map_err(|error| HostError::File(path.to_owned(), error))?;
    open_to_all(path)
}
