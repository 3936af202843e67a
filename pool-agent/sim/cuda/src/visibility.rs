//! Which cards a process sees, in which order: the device nodes it can open, narrowed by `CUDA_VISIBLE_DEVICES`.

use std::fs::OpenOptions;

use tarn_sim::Host;
use tarn_sim::machine::Gpu;

/// Cards by ordinal. The list stops at the first entry that names nothing, as the driver's does.
pub(crate) fn visible_cards(host: &Host, variable: Option<&str>) -> Vec<usize> {
    let present: Vec<usize> = (0..host.gpus().len()).filter(|card| node_opens(host, *card)).collect();
    let Some(list) = variable else { return present };
    let mut visible = Vec::new();
    for entry in list.split(',').map(str::trim) {
        match named(host.gpus(), &present, entry) {
            Some(card) if visible.contains(&card) => return Vec::new(),
            Some(card) => visible.push(card),
            None => break,
        }
    }
    visible
}

pub(crate) fn node_opens(host: &Host, card: usize) -> bool {
    OpenOptions::new().read(true).write(true).open(host.device_node(card)).is_ok()
}

fn named(gpus: &[Gpu], present: &[usize], entry: &str) -> Option<usize> {
    if let Ok(ordinal) = entry.parse::<usize>() {
        return present.get(ordinal).copied();
    }
    if !entry.starts_with("GPU-") || entry.len() == 4 {
        return None;
    }
    let mut matches = present.iter().copied().filter(|card| gpus[*card].uuid.starts_with(entry));
    let first = matches.next()?;
    matches.next().is_none().then_some(first)
}
