//! After an instance: proof that its cards are as they were, or that they are not.

use std::time::Duration;

use tarn_protocol::ids::GpuUuid;

use super::pool::IDLE_USED_MAX;
use crate::nvml::host::HostCards;
use crate::scrub::card::{ScrubError, Scrubber};
use crate::scrub::process::Scrubbed;

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

/// Scrubs cards, all at once; returns those on which that failed.
pub fn scrub(scrubber: &Scrubber, uuids: &[GpuUuid]) -> Vec<Residue> {
    let results: Vec<Result<Scrubbed, ScrubError>> = std::thread::scope(|scope| {
        let started: Vec<_> = uuids.iter().map(|uuid| scope.spawn(|| scrubber.scrub(uuid))).collect();
        let unknown = |_| Err(ScrubError::Failed("its thread died".to_owned()));
        started.into_iter().map(|thread| thread.join().unwrap_or_else(unknown)).collect()
    });
    let failed = uuids.iter().zip(results).filter_map(|(uuid, result)| match result {
        Ok(done) => {
            let (bytes, left_bytes, rate) = (done.bytes, done.left_bytes, done.mb_per_second());
            let dirty_bytes = done.dirty_bytes;
            tracing::info!(gpu = %uuid, bytes, left_bytes, dirty_bytes, mb_per_second = rate, "scrubbed");
            if dirty_bytes > 0 {
                tracing::warn!(gpu = %uuid, dirty_bytes, "the driver gave memory that was not zero");
            }
            None
        }
        Err(error) => Some(Residue { uuid: uuid.clone(), detail: format!("not scrubbed: {error}") }),
    });
    failed.collect()
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
