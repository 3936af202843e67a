//! Exported descriptors that outlive every handle: the memory stays while anyone has one open.
//!
//! Descriptors are passed through sockets and across forks, so nobody can count them; the kernel's own list of open files
//! is the truth. It is read only while some allocation lingers. One inside a socket is seen by nobody: its allocation is
//! entered again when it arrives and is imported ([`crate::layout::State::import`]).

use std::collections::HashSet;

/// The name behind every exported descriptor, as `/proc/*/fd` shows it: card, table entry, serial.
pub fn memory_name(gpu: usize, index: u32, serial: u64) -> String {
    format!("tarn-sim:{gpu}:{index}:{serial}")
}

/// Card, table entry and serial behind a descriptor's link text.
pub fn parse_memory_name(link: &str) -> Option<(usize, u32, u64)> {
    let name = link.strip_prefix("/memfd:tarn-sim:")?;
    let mut parts = name.split([':', ' ']);
    let gpu = parts.next()?.parse().ok()?;
    Some((gpu, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Serials of all allocations that some visible process has open.
pub fn open_serials() -> HashSet<u64> {
    let mut serials = HashSet::new();
    let Ok(processes) = std::fs::read_dir("/proc") else { return serials };
    let is_process = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    for process in processes.flatten().filter(|entry| is_process(&entry.file_name())) {
        let Ok(descriptors) = std::fs::read_dir(process.path().join("fd")) else { continue };
        for descriptor in descriptors.flatten() {
            let link = std::fs::read_link(descriptor.path()).unwrap_or_default();
            serials.extend(link.to_str().and_then(parse_memory_name).map(|(_, _, serial)| serial));
        }
    }
    serials
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_name_survives_the_kernels_decoration() {
        let link = format!("/memfd:{} (deleted)", memory_name(3, 17, 99));
        assert_eq!(parse_memory_name(&link), Some((3, 17, 99)));
        assert_eq!(parse_memory_name("/memfd:other (deleted)"), None);
    }
}
