//! The mapped state file and its lock.
//!
//! One robust process-shared mutex guards everything. A process killed inside it leaves the mutex to the kernel, the next
//! owner learns of it and counts the sums again from the entries, so a kill costs nobody else more than that count.

use std::fs::File as OsFile;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

use crate::layout::{File, LAYOUT_VERSION, MAGIC, State};

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("state file {0:?} cannot be opened")]
    Open(std::path::PathBuf, #[source] std::io::Error),
    #[error("state file {0:?} cannot be mapped")]
    Map(std::path::PathBuf, #[source] std::io::Error),
    #[error("state file {0:?} was written by another version")]
    Version(std::path::PathBuf),
    #[error("the state lock failed with {0}")]
    Lock(i32),
}

/// The state file, mapped. Clones of a process share one.
#[derive(Debug)]
pub struct SharedState {
    file: NonNull<File>,
}

// SAFETY: the mapping stays for the process's life and `State` is reached only through the process-shared mutex.
unsafe impl Send for SharedState {}
// SAFETY: as above; `lock` serialises threads as well as processes.
unsafe impl Sync for SharedState {}

impl SharedState {
    /// Writes a fresh, idle state file.
    pub fn create(path: &Path, capacities: &[u64]) -> Result<Self, StateError> {
        let open = |error| StateError::Open(path.to_owned(), error);
        let os_file = OsFile::options().read(true).write(true).create_new(true).open(path).map_err(open)?;
        os_file.set_len(size_of::<File>() as u64).map_err(open)?;
        let shared = Self::map(path, &os_file)?;
        let file = shared.file.as_ptr();
        // SAFETY: the file was just created, so no other process uses the mapping yet; zero bytes are a valid `File`.
        unsafe {
            let mut attributes = std::mem::zeroed::<libc::pthread_mutexattr_t>();
            libc::pthread_mutexattr_init(&raw mut attributes);
            libc::pthread_mutexattr_setpshared(&raw mut attributes, libc::PTHREAD_PROCESS_SHARED);
            libc::pthread_mutexattr_setrobust(&raw mut attributes, libc::PTHREAD_MUTEX_ROBUST);
            libc::pthread_mutex_init((*file).mutex.get(), &raw const attributes);
            libc::pthread_mutexattr_destroy(&raw mut attributes);
            for (gpu, capacity) in (*(*file).state.get()).gpus.iter_mut().zip(capacities) {
                gpu.capacity_bytes = *capacity;
            }
            (*file).version = LAYOUT_VERSION;
            (*file).magic = MAGIC;
        }
        Ok(shared)
    }

    pub fn open(path: &Path) -> Result<Self, StateError> {
        let open = |error| StateError::Open(path.to_owned(), error);
        let os_file = OsFile::options().read(true).write(true).open(path).map_err(open)?;
        if os_file.metadata().map_err(open)?.len() != size_of::<File>() as u64 {
            return Err(StateError::Version(path.to_owned()));
        }
        let shared = Self::map(path, &os_file)?;
        // SAFETY: magic and version are written before a host directory is handed out and never again.
        let (magic, version) = unsafe { (shared.file.as_ref().magic, shared.file.as_ref().version) };
        if magic == MAGIC && version == LAYOUT_VERSION {
            Ok(shared)
        } else {
            Err(StateError::Version(path.to_owned()))
        }
    }

    fn map(path: &Path, os_file: &OsFile) -> Result<Self, StateError> {
        // SAFETY: a new shared mapping of a file of exactly this size, at an address the kernel picks.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<File>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                os_file.as_raw_fd(),
                0,
            )
        };
        let failed = || StateError::Map(path.to_owned(), std::io::Error::last_os_error());
        if address == libc::MAP_FAILED {
            return Err(failed());
        }
        NonNull::new(address.cast::<File>()).map(|file| Self { file }).ok_or_else(failed)
    }

    /// Takes the host's lock. Hold it for bookkeeping only, never while bytes are copied or calls are made.
    pub fn lock(&self) -> Result<StateGuard<'_>, StateError> {
        // SAFETY: the mapping outlives the borrow; `mutex` is only ever used through the pthread calls.
        let mutex = unsafe { self.file.as_ref() }.mutex.get();
        // SAFETY: the mutex was initialised by `create` before the file could be opened.
        let code = unsafe { libc::pthread_mutex_lock(mutex) };
        if code == libc::EOWNERDEAD {
            // SAFETY: we own the mutex, whose former owner died; `recount` below makes the state consistent.
            unsafe { libc::pthread_mutex_consistent(mutex) };
        } else if code != 0 {
            return Err(StateError::Lock(code));
        }
        let mut guard = StateGuard { shared: self };
        if code == libc::EOWNERDEAD || guard.changing != 0 {
            guard.recount();
        }
        guard.changing = 1;
        Ok(guard)
    }
}

#[cfg(test)]
impl SharedState {
    /// Releases the lock with a change under way, as a death in the middle leaves it.
    ///
    /// # Safety
    /// The calling thread owns the lock and its guard was forgotten.
    pub(crate) unsafe fn unlock_as_if_dead(&self) {
        // SAFETY: the caller vouches for the ownership.
        unsafe { libc::pthread_mutex_unlock(self.file.as_ref().mutex.get()) };
    }
}

impl Drop for SharedState {
    fn drop(&mut self) {
        // SAFETY: unmaps what `map` mapped; no guard can be alive, since guards borrow `self`.
        unsafe { libc::munmap(self.file.as_ptr().cast(), size_of::<File>()) };
    }
}

/// Exclusive use of the host's state.
#[derive(Debug)]
pub struct StateGuard<'a> {
    shared: &'a SharedState,
}

impl Deref for StateGuard<'_> {
    type Target = State;
    fn deref(&self) -> &State {
        // SAFETY: the guard owns the process-shared mutex, so nobody writes meanwhile.
        unsafe { &*self.shared.file.as_ref().state.get() }
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        // SAFETY: the guard owns the process-shared mutex and is borrowed mutably.
        unsafe { &mut *self.shared.file.as_ref().state.get() }
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        self.changing = 0;
        // SAFETY: this guard took the mutex and is the only one to release it.
        unsafe { libc::pthread_mutex_unlock(self.shared.file.as_ref().mutex.get()) };
    }
}
