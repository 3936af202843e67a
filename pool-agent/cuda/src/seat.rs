//! Where this library sits: the directory of its own file tells which pool it serves and where the real driver is.
//!
//! Nothing is read from the environment, so `su`, `ssh`, `cron` and `env -i` inside an instance all see the same pool.

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tarn_protocol::pool_config::{FILE_NAME, PoolConfig};

use crate::log;

/// The real driver's file, beside ours.
const REAL_NAME: &str = "libcuda-real.so.1";

struct Seat {
    real: *mut c_void,
    config: Option<PoolConfig>,
}

// SAFETY: `real` is a loader handle, good for `dlsym` from any thread.
unsafe impl Send for Seat {}
// SAFETY: as above.
unsafe impl Sync for Seat {}

fn seat() -> &'static Seat {
    static SEAT: OnceLock<Seat> = OnceLock::new();
    SEAT.get_or_init(|| {
        let directory = own_directory();
        let real = directory.as_deref().map_or(std::ptr::null_mut(), open_real);
        let config = directory.as_deref().and_then(read_config);
        // Last: the hook reads what is being made here.
        std::panic::set_hook(Box::new(|panic| log::warn(&format!("cuda: {panic}"))));
        Seat { real, config }
    })
}

/// The pool config beside this file; `None` means that the bare driver is the truth.
pub(crate) fn config() -> Option<&'static PoolConfig> {
    seat().config.as_ref()
}

/// Address of `name` in the real driver, or null.
pub(crate) fn real_symbol(name: &CStr) -> *mut c_void {
    let real = seat().real;
    if real.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: a live loader handle and a NUL-terminated name.
    unsafe { libc::dlsym(real, name.as_ptr()) }
}

/// The directory that the loader found this library in, made absolute: links are not followed, since the real driver's link
/// lies beside ours.
fn own_directory() -> Option<PathBuf> {
    static ANCHOR: u8 = 0;
    // SAFETY: an all-zero Dl_info is valid, and dladdr writes it for an address in this library.
    let file = unsafe {
        let mut found: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr((&raw const ANCHOR).cast(), &raw mut found) == 0 || found.dli_fname.is_null() {
            return None;
        }
        CStr::from_ptr::<'static>(found.dli_fname.cast::<c_char>())
    };
    let path = Path::new(OsStr::from_bytes(file.to_bytes()));
    std::path::absolute(path).ok()?.parent().map(Path::to_owned)
}

fn open_real(directory: &Path) -> *mut c_void {
    let path = directory.join(REAL_NAME);
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return std::ptr::null_mut() };
    // SAFETY: a NUL-terminated path; the loader already has this file as our dependency.
    unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) }
}

fn read_config(directory: &Path) -> Option<PoolConfig> {
    let path = directory.join(FILE_NAME);
    match PoolConfig::read(&path) {
        Ok(config) => Some(config),
        Err(error) => {
            if path.exists() {
                log::append(&directory.join("standin.log"), &format!("cuda: {error}: showing the bare card"));
            }
            None
        }
    }
}
