//! Which host a driver library belongs to: the directory above its own `lib/`, never the environment.

use std::ffi::{CStr, OsStr, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Finds the host directory from the address of anything inside the calling library. Links to the library are followed; a
/// library that was bind-mounted or hard-linked elsewhere carries its host's path at its own end.
#[allow(clippy::not_unsafe_ptr_arg_deref)] // dladdr compares the address and reads nothing there
pub fn host_directory(address_in_library: *const c_void) -> Option<PathBuf> {
    // SAFETY: zero bytes are a valid `Dl_info`, and dladdr only fills it.
    let mut library = unsafe { std::mem::zeroed::<libc::Dl_info>() };
    // SAFETY: any address may be asked about.
    let found = unsafe { libc::dladdr(address_in_library, &raw mut library) };
    if found == 0 || library.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr answered a C string that lives as long as the library.
    let name = unsafe { CStr::from_ptr(library.dli_fname) };
    let path = std::fs::canonicalize(Path::new(OsStr::from_bytes(name.to_bytes()))).ok()?;
    let above = path.parent().and_then(Path::parent).filter(|host| host.join("host.json").is_file());
    above.map(Path::to_owned).or_else(|| trailer(&path))
}

const TRAILER_MARK: &[u8] = b"\ntarn-sim-host:";

/// The bytes appended to a library when it is placed in a host.
pub fn trailer_bytes(host: &Path) -> Vec<u8> {
    [TRAILER_MARK, host.as_os_str().as_bytes()].concat()
}

fn trailer(library: &Path) -> Option<PathBuf> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = std::fs::File::open(library).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(4200))).ok()?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail).ok()?;
    let at = tail.windows(TRAILER_MARK.len()).rposition(|window| window == TRAILER_MARK)?;
    Some(PathBuf::from(OsStr::from_bytes(&tail[at + TRAILER_MARK.len()..])))
}
