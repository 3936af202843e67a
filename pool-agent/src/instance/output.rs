//! The end of an instance's output, for reports.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Most that a report carries.
const TAIL_MAX: u64 = 64 * 1024;

/// The last bytes of the log, cut to whole characters; `None` without a log.
pub fn tail(log: &Path) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_MAX))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_start_matches('\u{fffd}').to_owned())
}
