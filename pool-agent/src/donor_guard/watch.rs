//! One thread a card: asks it twice a second, lets its sentry judge, acts and tells.

use std::sync::Arc;
use std::time::Duration;

use nvml_wrapper::Nvml;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tarn_protocol::control::{Escape, EscapeAction, GpuEvent, IdentifiedBy};
use tarn_protocol::ids::{GpuUuid, InstanceId};
use tarn_protocol::units::Bytes;

use super::lives::{Life, Lives};
use super::load::LoadAlarm;
use super::owner;
use super::sentry::{Act, EscapePolicy, Sentry, Sighting};
use crate::instance::worker::Surroundings;
use crate::nvml::card::CardSample;
use crate::process_mark::ProcessMark;

/// An escape is over within two seconds: two looks, and room for a card that answers late.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(500);
const SAMPLE_WITHIN: Duration = Duration::from_secs(1);
/// Accounting is asked at every so manieth look: it costs a call for each process that it remembers.
const LIVES_EVERY: u32 = 4;

/// Watches every card for as long as the process lives.
pub fn watch(around: &Arc<Surroundings>, policy: EscapePolicy) -> std::io::Result<()> {
    for uuid in around.cards.uuids() {
        let around = Arc::clone(around);
        std::thread::Builder::new().name("guard".to_owned()).spawn(move || {
            let mut guard = Guard {
                sentry: Sentry::new(uuid.clone(), policy),
                lives: Lives::default(),
                load: LoadAlarm::default(),
                around,
                uuid,
            };
            for look in 0u32.. {
                guard.look(look.is_multiple_of(LIVES_EVERY));
                std::thread::sleep(LOOK_EVERY);
            }
        })?;
    }
    Ok(())
}

struct Guard {
    around: Arc<Surroundings>,
    uuid: GpuUuid,
    sentry: Sentry,
    lives: Lives,
    load: LoadAlarm,
}

impl Guard {
    fn look(&mut self, with_lives: bool) {
        let Some(card) = self.around.cards.card(&self.uuid) else { return };
        // One that does not answer is told by its telemetry.
        let Ok(sample) = card.sample(SAMPLE_WITHIN) else { return };
        let seats = self.around.roster.seats();
        let members = |pid: u32| {
            let of = |id: &&InstanceId| self.around.runtime.members(id, None).contains(&pid);
            seats.keys().find(of).cloned()
        };
        let mut seen = Vec::new();
        for (pid, bytes) in &sample.processes {
            // Gone since the sample: it freed its memory, and accounting knows it.
            let Some(identity) = owner::identify(*pid, members) else { continue };
            if !self.around.allowed.has(&identity.mark) {
                seen.push(Sighting { identity, bytes: *bytes });
            }
        }
        for act in self.sentry.look(&seen, &seats, self.around.clock.now()) {
            match act {
                Act::Kill(mark) => kill(mark),
                Act::Tell(escape) => self.tell(*escape),
            }
        }
        self.lives.seen(sample.processes.iter().map(|(pid, _)| *pid));
        let mut donor_of = seats.iter().filter(|(_, seat)| seat.donors.contains(&self.uuid));
        let donor_of = donor_of.next().map(|(instance, _)| instance.clone());
        if with_lives {
            self.look_at_lives(donor_of.as_ref());
        }
        self.look_at_load(&sample, donor_of);
    }

    /// Asked of cards that are nobody's donor too, so that what it knew before a pool is no news in the pool.
    fn look_at_lives(&mut self, donor_of: Option<&InstanceId>) {
        let told = lives(self.around.cards.nvml(), &self.uuid);
        for life in self.lives.missed(&told) {
            let Some(instance) = donor_of.filter(|_| !self.around.allowed.had(life.pid)) else { continue };
            let now = self.around.clock.now();
            self.tell(Escape {
                instance_id: Some(instance.clone()),
                identified_by: IdentifiedBy::Card,
                pid: life.pid,
                cgroup: None,
                start_ticks: None,
                bytes: Bytes::new(life.bytes_max),
                samples: 0,
                first_seen_mono_ms: now,
                last_seen_mono_ms: now,
                action: EscapeAction::Reported,
            });
        }
    }

    fn look_at_load(&mut self, sample: &CardSample, donor_of: Option<InstanceId>) {
        let explained = donor_of.is_none() || !sample.processes.is_empty();
        if self.load.look(sample.utilization_percent, explained)
            && let (Some(instance), Some(percent)) = (donor_of, sample.utilization_percent)
        {
            self.around.board.event(GpuEvent {
                uuid: self.uuid.clone(),
                mono_ms: self.around.clock.now(),
                xid: 0,
                detail: format!(
                    "donor_busy: multiprocessors at {percent} % without a visible process, on a donor of {instance}"
                ),
                escape: None,
            });
        }
    }

    fn tell(&self, escape: Escape) {
        self.around.board.event(GpuEvent {
            uuid: self.uuid.clone(),
            mono_ms: self.around.clock.now(),
            xid: 0,
            detail: describe(&escape),
            escape: Some(Box::new(escape)),
        });
    }
}

/// Through a descriptor of the very process, so that nobody else's dies who got its pid meanwhile.
pub(super) fn kill(mark: ProcessMark) {
    let pid = i32::try_from(mark.pid).ok().and_then(rustix::process::Pid::from_raw);
    let Some(descriptor) = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else { return };
    if mark.alive() {
        // A process that is already gone is what was wanted.
        let _gone = pidfd_send_signal(&descriptor, Signal::KILL);
    }
}

/// Empty where the card keeps no account; it is not ours to switch on.
fn lives(nvml: &Nvml, uuid: &GpuUuid) -> Vec<Life> {
    let Ok(device) = nvml.device_by_uuid(uuid.as_str()) else { return Vec::new() };
    if !device.is_accounting_enabled().unwrap_or(false) {
        return Vec::new();
    }
    let pids = device.accounting_pids().unwrap_or_default();
    let told = pids.into_iter().filter_map(|pid| {
        let stats = device.accounting_stats_for(pid).ok()?;
        Some(Life {
            pid,
            started_us: stats.start_time,
            bytes_max: stats.max_memory_usage.unwrap_or(0),
            running: stats.is_running,
        })
    });
    told.collect()
}

fn describe(escape: &Escape) -> String {
    let whose = escape.instance_id.as_ref().map_or("no tenant".to_owned(), ToString::to_string);
    let what = match escape.action {
        EscapeAction::Killed => "killed",
        EscapeAction::Survived => "killed and still there",
        EscapeAction::Billed => "left alone, to be charged",
        EscapeAction::Reported => "reported",
    };
    format!(
        "donor_escape: process {} of {whose} computed on a card that is not its own, {} bytes, {} samples; {what}",
        escape.pid, escape.bytes, escape.samples
    )
}
