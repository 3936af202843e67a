//! Where this library sits: its own directory tells which pool it serves and where the real library is.
//!
//! Nothing is read from the environment, so that `su`, `ssh`, `cron` and `env -i` all see the same pool.

use std::ffi::{CStr, CString, c_void};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tarn_protocol::pool_config::{self, PoolConfig};

static SEAT: OnceLock<Seat> = OnceLock::new();

/// What was found beside this file, once for the life of the process.
struct Seat {
    pool: Option<PoolConfig>,
    real: *mut c_void,
}

// SAFETY: the handle is only passed to dlsym, which is safe from any thread.
unsafe impl Send for Seat {}
// SAFETY: as above.
unsafe impl Sync for Seat {}

/// The pool that this process sees, if a valid config lies beside this library.
pub(crate) fn pool() -> Option<&'static PoolConfig> {
    SEAT.get_or_init(find).pool.as_ref()
}

/// Address of `name` (NUL-terminated) in the real library.
pub(crate) fn real_symbol(name: &'static str) -> Option<*mut c_void> {
    let name = CStr::from_bytes_with_nul(name.as_bytes()).ok()?;
    let seat = SEAT.get_or_init(find);
    if seat.real.is_null() {
        return None;
    }
    // SAFETY: the handle is live for the life of the process; the name is NUL-terminated.
    let address = unsafe { libc::dlsym(seat.real, name.as_ptr()) };
    (!address.is_null()).then_some(address)
}

fn find() -> Seat {
    let Some(own) = own_directory() else {
        return Seat { pool: None, real: std::ptr::null_mut() };
    };
    let real = open_library(&own.join("libnvidia-ml-real.so.1"));
    let config = own.join(pool_config::FILE_NAME);
    let pool = match PoolConfig::read(&config) {
        Ok(pool) => Some(pool),
        Err(error) => {
            // Not a pool at all, or one that cannot be trusted: either way the truth is the bare card.
            if config.exists() {
                append(&own.join("standin.log"), &format!("nvml: {error}: showing the bare primary"));
            }
            None
        }
    };
    Seat { pool, real }
}

/// The directory of the file this code was loaded from.
fn own_directory() -> Option<PathBuf> {
    // SAFETY: an all-zero Dl_info is a valid value to be filled.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address is of our own code; info is writable.
    let found = unsafe { libc::dladdr(own_directory as *const c_void, &raw mut info) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr filled a NUL-terminated path that lives as long as the library.
    let path = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(path.to_bytes()));
    path.parent().map(Path::to_owned)
}

fn open_library(path: &Path) -> *mut c_void {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return std::ptr::null_mut();
    };
    // SAFETY: a NUL-terminated path; running the library's constructors is what loading it means.
    unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
}

/// One line for the operator; never on the tenant's stdout or stderr. Failing to write it is no reason to fail.
pub(crate) fn warn(line: &str) {
    if let Some(pool) = pool() {
        append(&pool.standin_log, line);
    }
}

fn append(path: &Path, line: &str) {
    if let Ok(mut file) = std::fs::OpenOptions::new().append(true).create(true).open(path) {
        let _ = writeln!(file, "{line}");
    }
}
