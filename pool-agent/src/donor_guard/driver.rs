//! Walls that the driver and the kernel can put up beside the guard: a compute mode on donors, and a limit on what a tenant's processes may
//! hold on them by themselves. Both are off unless the operator asks for them; asked for and not to be had, the pool does not start.
//!
//! The compute mode is of the whole card and outlasts this process, so it is put back before the card is scrubbed, probed or lent again.
//! `exclusive-process` keeps a second process off, not the first; `prohibited` keeps all off. Whether memory of a prohibited card can still
//! be made and imported without a context is the driver's business: a host's certificate does not show it, its first pool does.

use std::path::{Path, PathBuf};

use nvml_wrapper::enum_wrappers::device::ComputeMode;
use nvml_wrapper::error::NvmlError;
use tarn_protocol::ids::GpuUuid;
use tarn_protocol::units::Bytes;

use crate::nvml::host::HostCards;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum DonorMode {
    /// Left as the operator has it.
    Untouched,
    Prohibited,
    ExclusiveProcess,
}

#[derive(Debug, Clone, Copy)]
pub struct DriverGuard {
    pub mode: DonorMode,
    /// What the instance's own processes may hold on each donor; imported memory is the broker's.
    pub dmem_max: Option<Bytes>,
}

#[derive(Debug, thiserror::Error)]
pub enum DriverGuardError {
    #[error("the compute mode of donor {uuid} cannot be set (is the agent root?)")]
    Mode { uuid: GpuUuid, source: NvmlError },
    #[error("the kernel counts no device memory here: {0} is missing (needs cgroup v2 with dmem)")]
    NoController(PathBuf),
    #[error("the kernel knows no device memory of card {0}")]
    NoRegion(String),
    #[error("cannot limit device memory in {path}")]
    Limit { path: PathBuf, source: std::io::Error },
}

impl DriverGuard {
    /// Before the pool starts.
    pub fn close(&self, cards: &HostCards, donors: &[GpuUuid]) -> Result<(), DriverGuardError> {
        match self.mode {
            DonorMode::Untouched => Ok(()),
            DonorMode::Prohibited => set(cards, donors, ComputeMode::Prohibited),
            DonorMode::ExclusiveProcess => set(cards, donors, ComputeMode::ExclusiveProcess),
        }
    }

    /// Before anything of ours has to compute on them.
    pub fn open(&self, cards: &HostCards, donors: &[GpuUuid]) -> Result<(), DriverGuardError> {
        if self.mode == DonorMode::Untouched { Ok(()) } else { set(cards, donors, ComputeMode::Default) }
    }

    /// Limits an instance's groups on its donors, which are named by their bus.
    pub fn limit(&self, groups: &[PathBuf], bus_ids: &[String]) -> Result<(), DriverGuardError> {
        let Some(bytes) = self.dmem_max else { return Ok(()) };
        let root = Path::new(crate::runtime::cgroup::ROOT);
        groups.iter().try_for_each(|group| limit_in(root, group, bus_ids, bytes))
    }
}

fn set(cards: &HostCards, donors: &[GpuUuid], mode: ComputeMode) -> Result<(), DriverGuardError> {
    for uuid in donors {
        let failed = |source| DriverGuardError::Mode { uuid: uuid.clone(), source };
        let mut device = cards.nvml().device_by_uuid(uuid.as_str()).map_err(failed)?;
        device.set_compute_mode(mode).map_err(failed)?;
    }
    Ok(())
}

/// One line a card: the region as the kernel names it, and the most.
fn limit_in(root: &Path, group: &Path, bus_ids: &[String], bytes: Bytes) -> Result<(), DriverGuardError> {
    let capacity = root.join("dmem.capacity");
    let text =
        std::fs::read_to_string(&capacity).map_err(|_| DriverGuardError::NoController(capacity.clone()))?;
    let regions: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    for bus_id in bus_ids {
        let of_card = regions.iter().filter(|region| region.to_ascii_lowercase().contains(bus_id));
        let mut of_card = of_card.peekable();
        if of_card.peek().is_none() {
            return Err(DriverGuardError::NoRegion(bus_id.clone()));
        }
        for region in of_card {
            let path = group.join("dmem.max");
            std::fs::write(&path, format!("{region} {bytes}\n"))
                .map_err(|source| DriverGuardError::Limit { path, source })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_memory_is_limited_by_the_card_that_the_bus_names_and_never_silently_not() {
        let directory = tempfile::tempdir().unwrap();
        let (root, group) = (directory.path(), directory.path().join("tarn"));
        std::fs::create_dir(&group).unwrap();
        let limit = |bus: &str| limit_in(root, &group, &[bus.to_owned()], Bytes::mib(1));
        assert!(matches!(limit("0000:3b:00.0"), Err(DriverGuardError::NoController(_))));
        let capacity = "drm/0000:19:00.0/vram0 150754820096\ndrm/0000:3B:00.0/vram0 150754820096\n";
        std::fs::write(root.join("dmem.capacity"), capacity).unwrap();
        limit("0000:3b:00.0").unwrap();
        let written = std::fs::read_to_string(group.join("dmem.max")).unwrap();
        assert_eq!(written, "drm/0000:3B:00.0/vram0 1048576\n");
        assert!(matches!(limit("0000:99:00.0"), Err(DriverGuardError::NoRegion(_))));
    }
}
