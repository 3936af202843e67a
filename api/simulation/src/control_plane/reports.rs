//! What hosts say becomes the record, and what they are told is computed from it.

use std::collections::BTreeMap;

use tarn_protocol::control::{Goal, ObservedInstance, Phase, Report, RunUntil};
use tarn_protocol::ids::{HostId, InstanceId};
use tarn_protocol::units::{Generation, Sequence, Timestamp};
use tarn_provisioner::lifecycle::{DesiredState, ReasonCode, State};
use tarn_provisioner::reconcile::{
    Brakes, Freshness, HostView, KnownBoot, OrphanRecord, Remedy, SILENCE_SECONDS_MAX, Sighting, freshness,
    orphan_remedy, unreachable_since,
};

use super::instances::ReportTime;
use super::{ControlPlane, HostRow, Rental};
use crate::facts::{Fact, Shown};
use crate::host::Wanted;

impl ControlPlane {
    /// Takes a report over; the usage that is durable now.
    pub fn report(&mut self, host_id: &HostId, report: &Report) -> Sequence {
        let now = self.now();
        self.note(host_id, report, now);
        let boots = &self.hosts[host_id].boots;
        match freshness(boots, &report.boot_id, report.seq, report.mono_ms) {
            Freshness::Fresh => self.take_over(host_id, report, now),
            Freshness::Stale => {
                for usage in &report.usage {
                    self.accept_usage(host_id, usage, now);
                }
            }
            // One machine has one credential here. Only a clock of ours that stood still, or a wire slower than any slack, makes a late
            // report look like a clone's; what it proves counts all the same.
            Freshness::Cloned => {
                assert!(self.misled, "a late report is taken for a clone: {:?} at {now}", report.boot_id);
                for usage in &report.usage {
                    self.accept_usage(host_id, usage, now);
                }
            }
        }
        self.rearm_changed(now);
        report.usage.iter().map(|usage| usage.seq).max().unwrap_or_default()
    }

    fn note(&mut self, host_id: &HostId, report: &Report, now: Timestamp) {
        let here = |rental: &&Rental| rental.host_id.as_ref() == Some(host_id);
        let settled = self.rentals.values().filter(here).map(|rental| &rental.instance.id);
        self.facts.push(Fact::Heard {
            host_id: host_id.clone(),
            boot_id: report.boot_id.clone(),
            seq: report.seq,
            mono_ms: report.mono_ms.get(),
            at: now,
            shown: report
                .instances
                .iter()
                .map(|seen| (seen.instance_id.clone(), seen.generation, shown(&seen.phase)))
                .collect(),
            usage: report.usage.clone(),
            settled: settled.filter_map(|id| Some((id.clone(), self.settled_of(id)?))).collect(),
        });
    }

    fn take_over(&mut self, host_id: &HostId, report: &Report, now: Timestamp) {
        self.remember(host_id, report, now);
        let seen: BTreeMap<&InstanceId, &ObservedInstance> =
            report.instances.iter().map(|seen| (&seen.instance_id, seen)).collect();
        let here = self.order.iter().filter(|id| {
            let rental = &self.rentals[*id];
            rental.host_id.as_ref() == Some(host_id) && rental.instance.state != State::Terminated
        });
        let precedes =
            |id: &InstanceId| seen.get(id).is_some_and(|seen| Sighting::from(*seen).precedes_usage());
        let (running, others): (Vec<InstanceId>, Vec<InstanceId>) = here.cloned().partition(precedes);
        for id in &running {
            self.see(id, report, seen.get(id).copied(), now);
        }
        for usage in &report.usage {
            self.accept_usage(host_id, usage, now);
        }
        for id in &others {
            self.see(id, report, seen.get(id).copied(), now);
        }
        for stranger in &report.instances {
            if !running.contains(&stranger.instance_id) && !others.contains(&stranger.instance_id) {
                self.see_to_stranger(host_id, stranger, now);
            }
        }
        let row = self.hosts.get_mut(host_id).expect("a known host");
        row.evictions.retain(|id, _| seen.contains_key(id));
    }

    fn remember(&mut self, host_id: &HostId, report: &Report, now: Timestamp) {
        let row = self.hosts.get_mut(host_id).expect("a known host");
        (row.reported_at, row.unreachable_since) = (Some(now), None);
        let first_at =
            row.boots.iter().find(|boot| boot.boot_id == report.boot_id).map_or(now, |boot| boot.first_at);
        row.boots.retain(|boot| boot.boot_id != report.boot_id);
        row.boots.push(KnownBoot {
            boot_id: report.boot_id.clone(),
            first_at,
            seq: report.seq,
            last_at: now,
            last_mono_ms: report.mono_ms,
        });
    }

    fn see(&mut self, id: &InstanceId, report: &Report, seen: Option<&ObservedInstance>, now: Timestamp) {
        let view = HostView {
            unreachable_since: None,
            boot_id: Some(report.boot_id.clone()),
            desired_revision: report.desired_revision,
            sighting: seen.map(Sighting::from),
        };
        let time = ReportTime { received_at: now, boot_id: report.boot_id.clone(), mono_ms: report.mono_ms };
        self.converge(id, &view, Some(&time), now);
    }

    fn see_to_stranger(&mut self, host_id: &HostId, seen: &ObservedInstance, now: Timestamp) {
        let instance = &self.rentals[&seen.instance_id].instance;
        let record = OrphanRecord::Known {
            state: instance.state,
            host_id: self.rentals[&seen.instance_id].host_id.clone(),
            generation: instance.generation,
        };
        if orphan_remedy(&record, host_id, seen.generation, Brakes::Free, now) == Remedy::Remove {
            let row = self.hosts.get_mut(host_id).expect("a known host");
            if row.evictions.insert(seen.instance_id.clone(), seen.generation).is_none() {
                self.publish(host_id);
            }
        }
    }

    /// A new revision of what a host should have; the host hears that there is news.
    pub(super) fn publish(&mut self, host_id: &HostId) -> i64 {
        let row = self.hosts.get_mut(host_id).expect("a known host");
        row.revision += 1;
        self.news.insert(host_id.clone());
        row.revision
    }

    /// What should be on a host.
    pub fn desired(&self, host_id: &HostId) -> (i64, Vec<Wanted>) {
        let row = &self.hosts[host_id];
        let mut wanted = Vec::new();
        for rental in self.rentals.values().filter(|rental| rental.host_id.as_ref() == Some(host_id)) {
            let told = rental.instance.published.filter(|told| told.generation == rental.instance.generation);
            if let Some(told) = told.filter(|_| rental.instance.state != State::Terminated) {
                wanted.extend(self.wanted(rental, told.generation, told.goal));
            }
        }
        for (id, generation) in &row.evictions {
            wanted.extend(self.wanted(&self.rentals[id], *generation, Goal::Absent));
        }
        (row.revision, wanted)
    }

    fn wanted(&self, rental: &Rental, generation: Generation, goal: Goal) -> Option<Wanted> {
        let segment = self.open_segment_of(&rental.instance.id);
        let run_until = segment.and_then(|segment| {
            let mono_ms = self.paid.get(segment.id())?.mono_ms;
            Some(RunUntil { boot_id: segment.terms().anchor.boot_id.clone(), mono_ms })
        });
        // A lease that was released still names its cards; nothing starts on them.
        let primary = rental.instance.claim.as_ref().map(|claim| claim.primary.clone());
        let primary = primary
            .or_else(|| (goal != Goal::Running).then(|| tarn_protocol::ids::GpuUuid::from_bytes([0; 16])))?;
        Some(Wanted {
            instance_id: rental.instance.id.clone(),
            number: rental.number,
            generation,
            goal,
            primary,
            run_until,
        })
    }

    /// Since when a host counts as unreachable. Worlds that report rarely are patient to the same degree.
    pub(super) fn silent_since(&self, row: &HostRow, now: Timestamp) -> Option<Timestamp> {
        let rarely_micros = SILENCE_SECONDS_MAX * 1_000_000 * (self.setup.report_ms / 5_000 - 1);
        let heard = row.reported_at.map_or(now, |at| at.plus_micros(rarely_micros));
        row.unreachable_since.or_else(|| unreachable_since(heard, now))
    }

    /// One tick of the sweeping worker: silent hosts are flagged, holds expire.
    pub fn sweep(&mut self) {
        let now = self.now();
        let silent: Vec<(HostId, Option<Timestamp>)> =
            self.hosts.iter().map(|(id, row)| (id.clone(), self.silent_since(row, now))).collect();
        for (id, since) in silent {
            self.hosts.get_mut(&id).expect("a known host").unreachable_since = since;
        }
        for tenant in 0..self.ledgers.len() {
            if self.ledgers[tenant].expire_holds(now) {
                self.rearm.insert(tenant);
            }
        }
        self.rearm_changed(now);
    }

    /// Whether nothing is rented any more.
    pub fn quiet(&self) -> bool {
        self.rentals.values().all(|rental| rental.instance.state == State::Terminated)
    }

    pub fn wish_of(&self, id: &InstanceId) -> (DesiredState, ReasonCode) {
        let wish = self.rentals[id].instance.wish;
        (wish.state, wish.reason)
    }
}

fn shown(phase: &Phase) -> Shown {
    match phase {
        Phase::Running { ready_mono_ms } => Shown::Running { ready: ready_mono_ms.get() },
        Phase::Degraded { .. } => Shown::Degraded,
        Phase::Preparing { .. } | Phase::Stopping => Shown::OnItsWay,
        Phase::Stopped { .. } | Phase::Failed { .. } => Shown::Ended,
    }
}
