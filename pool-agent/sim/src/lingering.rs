//! Exported descriptors that outlive every handle: the memory stays while anyone has one open.
//!
//! Descriptors are passed through sockets and across forks, so nobody can count them; the kernel's own list of open files
//! is the truth. It is read only while some allocation lingers. One inside a socket is seen by nobody: its allocation is
//! entered again when it arrives and is imported ([`crate::layout::State::import`]).

use std::collections::HashSet;

use crate::ledger::AllocationId;

/// What is behind an exported descriptor, as `/proc/*/fd` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryName {
    /// Several simulated hosts may run on one machine.
    pub host: u64,
    pub gpu: usize,
    pub id: AllocationId,
}

impl MemoryName {
    pub fn text(&self) -> String {
        let Self { host, gpu, id } = self;
        format!("tarn-sim:{host:x}:{gpu}:{}:{}", id.index, id.serial)
    }

    /// Reads a descriptor's link text.
    pub fn parse(link: &str) -> Option<Self> {
        let mut parts = link.strip_prefix("/memfd:tarn-sim:")?.split([':', ' ']);
        let host = u64::from_str_radix(parts.next()?, 16).ok()?;
        let gpu = parts.next()?.parse().ok()?;
        let id = AllocationId { index: parts.next()?.parse().ok()?, serial: parts.next()?.parse().ok()? };
        Some(Self { host, gpu, id })
    }
}

/// The name of a host's own memory behind a descriptor: it is in no card's ledger.
pub fn host_memory_name(host: u64) -> String {
    format!("tarn-sim-host:{host:x}")
}

/// Whether a descriptor's link text names memory of that host itself.
pub fn is_host_memory(link: &str, host: u64) -> bool {
    let name = link.strip_prefix("/memfd:").and_then(|rest| rest.split(' ').next());
    name == Some(&host_memory_name(host))
}

/// Serials of all allocations of a host that some visible process has open.
pub fn open_serials(host: u64) -> HashSet<u64> {
    let mut serials = HashSet::new();
    let Ok(processes) = std::fs::read_dir("/proc") else { return serials };
    let is_process = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.parse::<u32>().is_ok());
    for process in processes.flatten().filter(|entry| is_process(&entry.file_name())) {
        let Ok(descriptors) = std::fs::read_dir(process.path().join("fd")) else { continue };
        for descriptor in descriptors.flatten() {
            let link = std::fs::read_link(descriptor.path()).unwrap_or_default();
            let name = link.to_str().and_then(MemoryName::parse).filter(|name| name.host == host);
            serials.extend(name.map(|name| name.id.serial));
        }
    }
    serials
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_name_survives_the_kernels_decoration() {
        let name = MemoryName { host: 0xabc, gpu: 3, id: AllocationId { index: 17, serial: 99 } };
        assert_eq!(MemoryName::parse(&format!("/memfd:{} (deleted)", name.text())), Some(name));
        assert_eq!(MemoryName::parse("/memfd:other (deleted)"), None);
    }
}
