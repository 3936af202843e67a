//! All cards of the host, by UUID, and the inventory that is told of them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use nvml_wrapper::nv_link::NvLink;
use nvml_wrapper::{Device, Nvml};
use tarn_protocol::hardware::{Gpu, GpuHealth, Inventory, LinkClass};
use tarn_protocol::ids::GpuUuid;
use tarn_protocol::units::Bytes;

use super::card::{Card, CardError, CardFacts, Nvlink};
use super::links::{self, Links};
use crate::health::HealthBook;
use crate::probe::circumstances::{MODULE_TEXT, ModuleFlavour};

const NVLINKS_MAX: u32 = 36;
/// Until when a card must have told what it is.
const IDENTIFY_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum NoDriver {
    #[error("no NVIDIA driver here: cannot load {library}: {detail}")]
    Library { library: String, detail: String },
    #[error("the driver does not answer: {detail}")]
    Silent { detail: String },
}

#[derive(Debug)]
pub struct HostCards {
    nvml: Arc<Nvml>,
    cards: BTreeMap<GpuUuid, Card>,
    links: Links,
    driver_version: String,
}

impl HostCards {
    /// Loads NVML from the driver's directory (or where the loader finds it) and asks every card what it is. A card that does not
    /// answer is left out: its UUID is not known.
    pub fn open(driver_dir: Option<&Path>) -> Result<Self, NoDriver> {
        let library = driver_dir.map_or("libnvidia-ml.so.1".into(), |path| path.join("libnvidia-ml.so.1"));
        let loaded = Nvml::builder().lib_path(library.as_os_str() as &OsStr).init();
        let nvml = Arc::new(loaded.map_err(|error| NoDriver::Library {
            library: library.display().to_string(),
            detail: error.to_string(),
        })?);
        let silent = |error: nvml_wrapper::error::NvmlError| NoDriver::Silent { detail: error.to_string() };
        let count = nvml.device_count().map_err(silent)?;
        let driver_version = nvml.sys_driver_version().map_err(silent)?;
        let facts = identify_all(&nvml, count);
        let links = links::ask(&nvml, &facts);
        let mut cards = BTreeMap::new();
        for mut fact in facts {
            fact.gpu.pcie_switch = links.switch_of(&fact.gpu.uuid);
            let card = Card::watch(&nvml, fact)
                .map_err(|error| NoDriver::Silent { detail: format!("no thread for a card: {error}") })?;
            cards.insert(card.uuid().clone(), card);
        }
        Ok(Self { nvml, cards, links, driver_version })
    }

    pub fn nvml(&self) -> &Arc<Nvml> {
        &self.nvml
    }

    pub fn driver_version(&self) -> &str {
        &self.driver_version
    }

    pub fn links(&self) -> &Links {
        &self.links
    }

    /// The loaded module; `None` where none is loaded.
    fn kernel_module(&self) -> Option<ModuleFlavour> {
        let text = std::fs::read_to_string(MODULE_TEXT).ok();
        let gpus: Vec<&Gpu> = self.cards.values().map(|card| &card.facts.gpu).collect();
        let peers_over_pcie = self.links.hints().iter().any(|hint| hint.class == LinkClass::PcieP2p);
        ModuleFlavour::tell(text.as_deref(), &gpus, peers_over_pcie)
    }

    pub fn card(&self, uuid: &GpuUuid) -> Option<&Card> {
        self.cards.get(uuid)
    }

    pub fn cards(&self) -> impl Iterator<Item = &Card> {
        self.cards.values()
    }

    pub fn uuids(&self) -> Vec<GpuUuid> {
        self.cards.keys().cloned().collect()
    }

    /// The inventory, with each card's health as `verdict` gives it.
    pub fn inventory(&self, health: &HealthBook, momentary: &BTreeMap<GpuUuid, GpuHealth>) -> Inventory {
        let cuda = self.nvml.sys_cuda_driver_version().unwrap_or(0);
        let gpus = self.cards.values().map(|card| {
            let lasting = health.verdict(card.uuid());
            let verdict = match (lasting, momentary.get(card.uuid())) {
                (GpuHealth::Ok | GpuHealth::Degraded { .. }, Some(now)) => now.clone(),
                (lasting, _) => lasting,
            };
            Gpu { health: verdict, ..card.facts.gpu.clone() }
        });
        Inventory {
            driver_version: self.driver_version.clone(),
            nvml_version: self.nvml.sys_nvml_version().unwrap_or_default(),
            cuda_version: format!("{}.{}", cuda / 1000, cuda % 1000 / 10),
            kernel_module: self.kernel_module().map(|flavour| flavour.as_str().to_owned()),
            gpus: gpus.collect(),
            links: self.links.hints().to_vec(),
        }
    }
}

/// Asks all cards at once, so that one that hangs delays nobody beyond the deadline.
fn identify_all(nvml: &Arc<Nvml>, count: u32) -> Vec<CardFacts> {
    let (told, tells) = channel();
    for index in 0..count {
        let (nvml, told) = (Arc::clone(nvml), told.clone());
        std::thread::spawn(move || {
            let _late = told.send((index, identify(&nvml, index)));
        });
    }
    drop(told);
    let mut facts = Vec::new();
    while let Ok((index, answer)) = tells.recv_timeout(IDENTIFY_WITHIN) {
        match answer {
            Ok(fact) => facts.push(fact),
            Err(error) => tracing::warn!(index, %error, "a card does not say what it is"),
        }
    }
    if facts.len() < usize::try_from(count).unwrap_or(0) {
        tracing::warn!(found = facts.len(), count, "not every card is known");
    }
    facts.sort_by_key(|fact| fact.gpu.minor);
    facts
}

fn identify(nvml: &Nvml, index: u32) -> Result<CardFacts, CardError> {
    let device = nvml.device_by_index(index)?;
    let text = device.uuid()?;
    let uuid =
        GpuUuid::try_from(text.clone()).map_err(|_| CardError::Nvml { detail: format!("uuid {text}") })?;
    let capability = device.cuda_compute_capability()?;
    let pci_bus_id = bus_id(&device.pci_info()?.bus_id);
    let gpu = Gpu {
        uuid,
        model: device.name()?,
        serial: device.serial().ok().filter(|serial| !serial.is_empty() && serial != "0"),
        memory_bytes: Bytes::new(device.memory_info()?.total),
        bar1_bytes: Bytes::new(device.bar1_memory_info().map_or(0, |bar1| bar1.total)),
        numa_node: device.numa_node_id().ok().or_else(|| numa_node(&pci_bus_id)),
        pci_bus_id,
        minor: device.minor_number().unwrap_or(index),
        pcie_switch: None,
        compute_capability: format!("{}.{}", capability.major, capability.minor),
        mig_enabled: device.mig_mode().is_ok_and(|mode| mode.current == 1),
        display_active: device.is_display_active().unwrap_or(false),
        health: GpuHealth::Ok,
    };
    Ok(CardFacts { gpu, nvlink: nvlink(&device) })
}

pub(super) fn active_nvlinks<'d>(device: &'d Device<'_>) -> impl Iterator<Item = NvLink<'d, 'd>> {
    let links = (0..NVLINKS_MAX).map(|number| device.link_wrapper_for(number));
    links.filter(|link| link.is_active().unwrap_or(false))
}

fn nvlink(device: &Device<'_>) -> Nvlink {
    let mut found = Nvlink::default();
    for link in active_nvlinks(device) {
        // The other end's kind is not asked for: the wrapper's call for it answers `Unknown` whatever the driver says.
        found.ends.push(link.remote_pci_info().ok().map(|remote| bus_id(&remote.bus_id)));
        if found.mb_per_second == 0 {
            found.mb_per_second = links::nvlink_speed(device, link.version().unwrap_or(0));
        }
    }
    found
}

/// One spelling: `0000:01:00.0`, lower case, four digits of domain.
fn bus_id(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    match text.split_once(':') {
        Some((domain, rest)) if domain.len() > 4 => format!("{}:{rest}", &domain[domain.len() - 4..]),
        _ => text,
    }
}

fn numa_node(pci_bus_id: &str) -> Option<u32> {
    std::fs::read_to_string(format!("/sys/bus/pci/devices/{pci_bus_id}/numa_node")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bus_ids_have_one_spelling() {
        assert_eq!(bus_id("00000000:C1:00.0"), "0000:c1:00.0");
        assert_eq!(bus_id("0000:01:00.0"), "0000:01:00.0");
    }

    #[test]
    fn a_missing_driver_is_one_clear_line() {
        let error = HostCards::open(Some(Path::new("/nonexistent"))).unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("no NVIDIA driver here") && !text.contains('\n'), "{text}");
    }
}
