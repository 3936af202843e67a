//! One-line warnings to the pool's append-only log, for the agent to read. Never stdout or stderr: those are the tenant's.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::seat;

/// Lines that one process may write: enough to tell what is wrong, too few to fill a disk.
const LINES_MAX: u32 = 64;

/// Appends a line to the log that the pool config names.
pub(crate) fn warn(line: &str) {
    if let Some(config) = seat::config() {
        append(&config.standin_log, line);
    }
}

/// Appends a line to `path`, if it can be written.
pub(crate) fn append(path: &Path, line: &str) {
    static WRITTEN: AtomicU32 = AtomicU32::new(0);
    if WRITTEN.fetch_add(1, Relaxed) >= LINES_MAX {
        return;
    }
    let text = format!("{} {}\n", std::process::id(), line.replace('\n', " "));
    // A log that cannot be written is no reason to fail a tenant's call.
    let _ = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o666)
        .custom_flags(libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()));
}
