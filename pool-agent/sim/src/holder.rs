//! Processes that use the host: registered by pid and start time, swept once dead.
//!
//! A pid means nothing in another pid namespace, so every process also keeps a record lock on its byte of `holders`: the
//! kernel drops it at death and translates its owner's pid for whoever asks. Inside one namespace `/proc` decides. A record
//! lock goes when any descriptor of its file is closed, so a process opens the file once and never closes it.

use std::fs::File as OsFile;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::layout::{FREE, GPUS_MAX, HOLDERS_MAX, Holder, State};

/// Lets this process tell living holders from dead ones.
#[derive(Debug)]
pub struct Liveness {
    locks: OsFile,
    pid_namespace: u64,
}

/// Everything this process has opened, for as long as it lives.
static OPENED: Mutex<Vec<(PathBuf, Arc<Liveness>)>> = Mutex::new(Vec::new());

impl Liveness {
    pub fn open(directory: &Path) -> std::io::Result<Arc<Self>> {
        let directory = directory.canonicalize()?;
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, liveness)) = opened.iter().find(|(known, _)| *known == directory) {
            return Ok(Arc::clone(liveness));
        }
        let locks = OsFile::options().read(true).write(true).open(directory.join("holders"))?;
        let pid_namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino());
        let liveness = Arc::new(Self { locks, pid_namespace });
        opened.push((directory, Arc::clone(&liveness)));
        Ok(liveness)
    }

    pub fn pid_namespace(&self) -> u64 {
        self.pid_namespace
    }

    /// Enters the calling process. Dead holders are swept only when the table is full: a thousand processes may come at once.
    pub fn register(&self, state: &mut State) -> Option<usize> {
        self.drop_former_programs(state);
        let free = |state: &State| state.holders.iter().position(|holder| holder.live == FREE);
        let slot = free(state).or_else(|| {
            self.sweep(state, None);
            free(state)
        })?;
        let pid = std::process::id();
        state.holders[slot] = Holder {
            live: 1,
            pid,
            start_ticks: start_ticks(pid).unwrap_or(0),
            pid_namespace: self.pid_namespace,
            program: program(),
            references: 0,
            pad: 0,
            contexts: [0; GPUS_MAX],
            context_bytes: [0; GPUS_MAX],
            native_bytes: [0; GPUS_MAX],
        };
        state.holders_high = state.holders_high.max(slot as u32 + 1);
        self.record_lock(libc::F_SETLK, slot);
        Some(slot)
    }

    /// Drops what this process held before it became another program by exec, which no death shows.
    fn drop_former_programs(&self, state: &mut State) {
        let pid = std::process::id();
        for slot in 0..state.holders_high as usize {
            let holder = &state.holders[slot];
            let same_process =
                holder.live != FREE && holder.pid == pid && holder.pid_namespace == self.pid_namespace;
            if same_process && holder.program != program() {
                state.drop_holder(slot);
            }
        }
    }

    /// Drops what dead processes held. `own` is the caller's slot, whose lock it cannot ask about.
    pub fn sweep(&self, state: &mut State, own: Option<usize>) {
        for slot in 0..(state.holders_high as usize).min(HOLDERS_MAX) {
            if state.holders[slot].live != FREE
                && Some(slot) != own
                && !self.alive(&state.holders[slot], slot)
            {
                state.drop_holder(slot);
            }
        }
    }

    fn alive(&self, holder: &Holder, slot: usize) -> bool {
        if holder.pid_namespace == self.pid_namespace && holder.start_ticks != 0 {
            return start_ticks(holder.pid) == Some(holder.start_ticks);
        }
        self.lock_owner(slot).is_some()
    }

    /// The holder's pid as this process would name it.
    pub fn visible_pid(&self, holder: &Holder, slot: usize) -> Option<u32> {
        if holder.pid_namespace == self.pid_namespace {
            return Some(holder.pid);
        }
        self.lock_owner(slot).filter(|pid| *pid > 0)
    }

    fn lock_owner(&self, slot: usize) -> Option<u32> {
        let lock = self.record_lock(libc::F_GETLK, slot)?;
        (i32::from(lock.l_type) != libc::F_UNLCK).then(|| u32::try_from(lock.l_pid).unwrap_or(0))
    }

    fn record_lock(&self, command: i32, slot: usize) -> Option<libc::flock> {
        // SAFETY: zero bytes are a valid `flock`.
        let mut lock = unsafe { std::mem::zeroed::<libc::flock>() };
        lock.l_type = libc::F_WRLCK as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = slot as libc::off_t;
        lock.l_len = 1;
        // SAFETY: the descriptor is ours and `lock` outlives the call.
        let code = unsafe { libc::fcntl(self.locks.as_raw_fd(), command, &raw mut lock) };
        (code == 0).then_some(lock)
    }
}

/// The kernel's random bytes for this program image, the same for every copy of this library in it.
fn program() -> u64 {
    // SAFETY: AT_RANDOM is the address of sixteen bytes that live as long as the program, or 0.
    unsafe {
        let bytes = libc::getauxval(libc::AT_RANDOM) as *const u64;
        if bytes.is_null() { 0 } else { bytes.read_unaligned() }
    }
}

/// When a process started, in ticks after boot; `None` once it is dead, a zombie included.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let after_name = stat.rsplit_once(')')?.1;
    let mut fields = after_name.split_whitespace();
    let running = fields.next().is_some_and(|status| status != "Z" && status != "X");
    fields.nth(18).filter(|_| running)?.parse().ok()
}
