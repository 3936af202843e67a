//! Observed state, told: on every change and at least every few seconds, until it is accepted.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tarn_protocol::control::{GpuEvent, GpuTelemetry, ObservedInstance, Report};
use tarn_protocol::hardware::{GpuHealth, Inventory};
use tarn_protocol::ids::{GpuUuid, InstanceId};
use tarn_protocol::units::{BootId, MonoMillis, Sequence};

use crate::board::Reading;
use crate::durable_file::{self, DurableError};
use crate::instance::directory::InstanceDirectory;
use crate::instance::output;
use crate::instance::worker::Surroundings;
use crate::state_dir::StateDir;

/// Evidence in one report.
const USAGE_MAX: usize = 1000;
const SAMPLE_WITHIN: Duration = Duration::from_millis(1500);

/// Numbers reports: one more for each, over restarts of the agent; from the start again in a new boot.
#[derive(Debug)]
pub struct ReportNumbers {
    state: StateDir,
    last: Numbered,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Numbered {
    boot_id: BootId,
    seq: Sequence,
}

impl ReportNumbers {
    /// Where the number is lost, the host's clock is above it: reports are further apart than its milliseconds.
    pub fn open(state: &StateDir, boot_id: &BootId, now: MonoMillis) -> Result<Self, DurableError> {
        let lost = || Numbered { boot_id: boot_id.clone(), seq: Sequence::new(now.get()) };
        let last = match durable_file::read_json::<Numbered>(&state.file("report_seq.json")) {
            Ok(Some(stored)) if stored.boot_id == *boot_id => stored,
            Ok(Some(_)) => Numbered { boot_id: boot_id.clone(), seq: Sequence::new(0) },
            Ok(None) => lost(),
            Err(DurableError::Parse { path, .. }) => {
                tracing::warn!(path = %path.display(), "damaged; reports go on from the clock");
                lost()
            }
            Err(error) => return Err(error),
        };
        Ok(Self { state: state.clone(), last })
    }

    /// Durable before it is used.
    fn next(&mut self) -> Result<Sequence, DurableError> {
        let next = Numbered { seq: Sequence::new(self.last.seq.get() + 1), ..self.last.clone() };
        durable_file::replace_json(&self.state.file("report_seq.json"), &next)?;
        self.last = next;
        Ok(self.last.seq)
    }
}

/// Makes reports and remembers what was accepted, so that what did not change is not said again.
#[derive(Debug)]
pub struct Reporter {
    around: Arc<Surroundings>,
    numbers: ReportNumbers,
    told_inventory: Option<Inventory>,
    told_logs: BTreeMap<InstanceId, String>,
}

/// A report and what has to be remembered once it is accepted.
#[derive(Debug)]
pub struct Draft {
    pub report: Report,
    reading: Reading,
    logs: BTreeMap<InstanceId, String>,
}

impl Reporter {
    pub fn new(around: Arc<Surroundings>, numbers: ReportNumbers) -> Self {
        Self { around, numbers, told_inventory: None, told_logs: BTreeMap::new() }
    }

    /// Blocks for as long as the slowest card is waited for.
    pub fn draft(&mut self) -> Result<Draft, DurableError> {
        let (telemetry, momentary) = self.telemetry();
        self.note_lost(&momentary);
        let health = self.around.health.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let inventory = self.around.cards.inventory(&health, &momentary);
        let reading = self.around.board.read();
        let mut logs = BTreeMap::new();
        let instances = reading.instances.iter().map(|seen| self.with_log(seen, &mut logs)).collect();
        let report = Report {
            boot_id: self.around.clock.boot_id().clone(),
            seq: self.numbers.next()?,
            mono_ms: self.around.clock.now(),
            desired_revision: reading.desired_revision,
            inventory: (self.told_inventory.as_ref() != Some(&inventory)).then_some(inventory),
            probes: reading.probes.clone(),
            instances,
            usage: self.around.usage.waiting(USAGE_MAX),
            telemetry,
            gpu_events: reading.events.clone(),
        };
        Ok(Draft { report, reading, logs })
    }

    /// The control plane has it.
    pub fn accepted(&mut self, draft: Draft, usage_through: Sequence) -> Result<(), DurableError> {
        self.around.board.told(&draft.reading);
        if draft.report.inventory.is_some() {
            self.told_inventory = draft.report.inventory;
        }
        self.told_logs.extend(draft.logs);
        let present: Vec<&InstanceId> =
            draft.reading.instances.iter().map(|seen| &seen.instance_id).collect();
        self.told_logs.retain(|id, _| present.contains(&id));
        self.around.usage.acknowledged(usage_through)
    }

    /// All cards at once: one that hangs costs its own deadline and nobody else's.
    fn telemetry(&self) -> (Vec<GpuTelemetry>, BTreeMap<GpuUuid, GpuHealth>) {
        let answers: Vec<(GpuTelemetry, Option<GpuHealth>)> = std::thread::scope(|scope| {
            let asked: Vec<_> =
                self.around.cards.cards().map(|card| scope.spawn(|| card.telemetry(SAMPLE_WITHIN))).collect();
            asked.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let momentary = answers
            .iter()
            .filter_map(|(telemetry, health)| Some((telemetry.uuid.clone(), health.clone()?)))
            .collect();
        (answers.into_iter().map(|(telemetry, _)| telemetry).collect(), momentary)
    }

    /// A card that is missing without an Xid counts as one that fell off the bus.
    fn note_lost(&self, momentary: &BTreeMap<GpuUuid, GpuHealth>) {
        let lost = momentary.iter().filter(|(_, health)| matches!(health, GpuHealth::OutOfService { .. }));
        for (uuid, health) in lost {
            let known = self.around.health.lock().unwrap_or_else(PoisonError::into_inner).verdict(uuid);
            if !matches!(known, GpuHealth::OutOfService { .. }) {
                self.around.fault(uuid, health.clone());
                self.around.board.event(GpuEvent {
                    uuid: uuid.clone(),
                    mono_ms: self.around.clock.now(),
                    xid: 0,
                    detail: "card_lost".to_owned(),
                    escape: None,
                });
                self.around.board.card_fell(uuid, "card lost");
            }
        }
    }

    fn with_log(&self, seen: &ObservedInstance, logs: &mut BTreeMap<InstanceId, String>) -> ObservedInstance {
        let directory = InstanceDirectory::at(self.around.state.instance(&seen.instance_id));
        let tail = output::tail(&directory.log());
        let news = tail.filter(|tail| self.told_logs.get(&seen.instance_id) != Some(tail));
        if let Some(tail) = &news {
            logs.insert(seen.instance_id.clone(), tail.clone());
        }
        ObservedInstance { log_tail: news, ..seen.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_over_restarts_and_begin_anew_in_a_new_boot() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let boot = BootId::new("one");
        let mut numbers = ReportNumbers::open(&state, &boot, MonoMillis::new(0)).unwrap();
        numbers.next().unwrap();
        numbers.next().unwrap();
        let mut numbers = ReportNumbers::open(&state, &boot, MonoMillis::new(0)).unwrap();
        assert_eq!(numbers.next().unwrap(), Sequence::new(3));
        let mut numbers = ReportNumbers::open(&state, &BootId::new("two"), MonoMillis::new(0)).unwrap();
        assert_eq!(numbers.next().unwrap(), Sequence::new(1));
    }
}
