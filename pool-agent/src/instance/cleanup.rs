//! After an instance: proof that its cards are as they were, or that they are not.

use std::time::Duration;

use tarn_protocol::ids::GpuUuid;

use super::pool::IDLE_USED_MAX;
use crate::nvml::host::HostCards;

const POLL: Duration = Duration::from_millis(50);
const SAMPLE_WITHIN: Duration = Duration::from_secs(5);

/// A card that did not become idle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Residue {
    pub uuid: GpuUuid,
    pub detail: String,
}

/// Waits until every card is idle or `patience` is over; returns those that are not.
pub fn await_idle(cards: &HostCards, uuids: &[GpuUuid], patience: Duration) -> Vec<Residue> {
    let mut waited = Duration::ZERO;
    loop {
        let left: Vec<Residue> = uuids.iter().filter_map(|uuid| residue(cards, uuid)).collect();
        if left.is_empty() || waited >= patience {
            return left;
        }
        std::thread::sleep(POLL);
        waited += POLL;
    }
}

fn residue(cards: &HostCards, uuid: &GpuUuid) -> Option<Residue> {
    let found = |detail: String| Some(Residue { uuid: uuid.clone(), detail });
    match cards.card(uuid).map(|card| card.sample(SAMPLE_WITHIN)) {
        None => found("not on this host".to_owned()),
        Some(Err(error)) => found(error.to_string()),
        Some(Ok(sample)) if sample.used_bytes > IDLE_USED_MAX => {
            found(format!("{} bytes in use", sample.used_bytes))
        }
        Some(Ok(sample)) if !sample.processes.is_empty() => {
            found(format!("{} compute processes", sample.processes.len()))
        }
        Some(Ok(_)) => None,
    }
}
