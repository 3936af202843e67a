//! What the kernel says of the way between a card and the root: whether an IOMMU translates, and whether access control on the bridges
//! sends peer traffic up to it.

use std::path::{Path, PathBuf};

const DEVICES: &str = "/sys/bus/pci/devices";
/// PCI Express extended capabilities begin here in a function's configuration.
const EXTENDED: usize = 0x100;
/// Access Control Services.
const ACS: u16 = 0x000d;
/// Control bits of ACS that redirect requests and completions of peers upstream.
const REDIRECT: u16 = 0x0004 | 0x0008;
const CAPABILITIES_MAX: usize = 64;

/// Whether the kernel translates the card's addresses; `None` without an IOMMU.
pub fn iommu_translating(pci_bus_id: &str) -> Option<bool> {
    let path = Path::new(DEVICES).join(pci_bus_id).join("iommu_group/type");
    Some(std::fs::read_to_string(path).ok()?.trim() != "identity")
}

/// Whether any bridge above the card redirects peers; `None` where the configuration cannot be read whole (only root can).
pub fn acs_redirect(pci_bus_id: &str) -> Option<bool> {
    let device = Path::new(DEVICES).join(pci_bus_id).canonicalize().ok()?;
    let bridges = bridges_above(&device);
    let mut answers = bridges.iter().map(|bridge| redirects(&std::fs::read(bridge.join("config")).ok()?));
    answers.try_fold(false, |any, answer| Some(any || answer?)).filter(|_| !bridges.is_empty())
}

fn bridges_above(device: &Path) -> Vec<PathBuf> {
    device.ancestors().skip(1).filter(|path| path.join("config").is_file()).map(Path::to_owned).collect()
}

/// `None` when the text ends before the extended capabilities, as it does for everyone but root.
fn redirects(configuration: &[u8]) -> Option<bool> {
    let word = |at: usize| Some(u16::from_le_bytes(configuration.get(at..at + 2)?.try_into().ok()?));
    let mut at = EXTENDED;
    word(at)?;
    for _ in 0..CAPABILITIES_MAX {
        let (id, next) = (word(at)?, usize::from(word(at + 2)? >> 4));
        if id == ACS {
            return Some(word(at + 6)? & REDIRECT != 0);
        }
        if next < EXTENDED {
            break;
        }
        at = next;
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(control: u16) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        // An error reporting capability first, then access control at 0x140.
        bytes[0x100..0x104].copy_from_slice(&[0x01, 0x00, 0x01, 0x14]);
        bytes[0x140..0x144].copy_from_slice(&[0x0d, 0x00, 0x01, 0x00]);
        bytes[0x146..0x148].copy_from_slice(&control.to_le_bytes());
        bytes
    }

    #[test]
    fn access_control_is_read_from_a_bridges_configuration() {
        assert_eq!(redirects(&configuration(0x001d)), Some(true));
        assert_eq!(redirects(&configuration(0x0001)), Some(false));
        assert_eq!(redirects(&vec![0; 4096]), Some(false));
        assert_eq!(redirects(&configuration(0)[..64]), None);
    }
}
