//! The agent's verdict on each card. Faults outlive the agent: they are on disk, and only a test clears them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tarn_protocol::hardware::GpuHealth;
use tarn_protocol::ids::GpuUuid;
use tarn_protocol::units::{BootId, MonoMillis};

use crate::durable_file::{self, DurableError};
use crate::state_dir::StateDir;
use crate::xid::{Action, action};

/// Xids of one card without this much silence between them are one burst, counted once.
const BURST_GAP_MS: u64 = 3 * 60 * 1000;
const WEEK_MS: u64 = 7 * 24 * 3600 * 1000;
const CONTAINED_IN_A_WEEK_MAX: usize = 3;
const SIGHTINGS_MAX: usize = 32;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthBook {
    cards: BTreeMap<GpuUuid, CardHealth>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct CardHealth {
    verdict: Option<GpuHealth>,
    sightings: Vec<Sighting>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Sighting {
    boot_id: BootId,
    mono_ms: MonoMillis,
    xid: u32,
}

/// What an instance on the card must suffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consequence {
    None,
    /// Every instance with a byte on the card ends; its time is not the tenant's.
    StopInstances,
}

impl HealthBook {
    pub fn verdict(&self, uuid: &GpuUuid) -> GpuHealth {
        self.cards.get(uuid).and_then(|card| card.verdict.clone()).unwrap_or(GpuHealth::Ok)
    }

    /// Judges one Xid. Two sightings of one code within a burst count once.
    pub fn xid(&mut self, uuid: &GpuUuid, xid: u32, boot_id: &BootId, at: MonoMillis) -> Consequence {
        let card = self.cards.entry(uuid.clone()).or_default();
        let again = card.sightings.iter().rev().any(|seen| {
            let gap = at.get().saturating_sub(seen.mono_ms.get());
            seen.xid == xid && seen.boot_id == *boot_id && gap < BURST_GAP_MS
        });
        let earlier = card.sightings.iter().filter(|seen| seen.xid == xid).count();
        if !again {
            card.sightings.push(Sighting { boot_id: boot_id.clone(), mono_ms: at, xid });
            let excess = card.sightings.len().saturating_sub(SIGHTINGS_MAX);
            card.sightings.drain(..excess);
        }
        let repeated = !again && earlier > 0;
        let recent = card.recent(xid, boot_id, at);
        let (verdict, consequence) = judge(xid, repeated, recent);
        if let Some(verdict) = verdict {
            card.worsen(verdict);
        }
        consequence
    }

    /// A fact other than an Xid, for example residue of a tenant.
    pub fn fault(&mut self, uuid: &GpuUuid, verdict: GpuHealth) {
        self.cards.entry(uuid.clone()).or_default().worsen(verdict);
    }

    /// Only a passed test of the card does this.
    pub fn clear(&mut self, uuid: &GpuUuid) {
        if let Some(card) = self.cards.get_mut(uuid) {
            card.verdict = None;
        }
    }

    /// A record that cannot be read may have held a fault of any card: all of `cards` are kept out until they are tested.
    pub fn load(state: &StateDir, cards: &[GpuUuid]) -> Result<Self, DurableError> {
        let remedy = "test the cards and clear them";
        match durable_file::read_json_twice(&state.file("health.json"), remedy) {
            Err(error @ DurableError::Damaged { .. }) => {
                tracing::error!(%error, "every card is kept out of placement");
                let mut book = Self::default();
                for card in cards {
                    book.fault(card, GpuHealth::Drain { reason: "its health record was lost".to_owned() });
                }
                Ok(book)
            }
            other => Ok(other?.unwrap_or_default()),
        }
    }

    pub fn save(&self, state: &StateDir) -> Result<(), DurableError> {
        durable_file::replace_json_twice(&state.file("health.json"), self)
    }
}

impl CardHealth {
    fn worsen(&mut self, verdict: GpuHealth) {
        if self.verdict.as_ref().is_none_or(|known| severity(known) <= severity(&verdict)) {
            self.verdict = Some(verdict);
        }
    }

    /// Sightings of a code in the last week. Those of earlier boots have no place on this clock and count as recent.
    fn recent(&self, xid: u32, boot_id: &BootId, at: MonoMillis) -> usize {
        let recent = |seen: &&Sighting| {
            let same_boot = seen.boot_id == *boot_id;
            seen.xid == xid && (!same_boot || at.get().saturating_sub(seen.mono_ms.get()) <= WEEK_MS)
        };
        self.sightings.iter().filter(recent).count()
    }
}

fn judge(xid: u32, repeated: bool, recent: usize) -> (Option<GpuHealth>, Consequence) {
    let drain = || Some(GpuHealth::Drain { reason: format!("xid {xid}") });
    let retired = || Some(GpuHealth::OutOfService { reason: format!("xid {xid}") });
    match action(xid) {
        Action::Tenant | Action::Watch => (None, Consequence::None),
        Action::RestartInstance if recent >= CONTAINED_IN_A_WEEK_MAX => (drain(), Consequence::StopInstances),
        Action::RestartInstance => (None, Consequence::StopInstances),
        Action::StopAndDrain if repeated => (retired(), Consequence::StopInstances),
        Action::StopAndDrain => (drain(), Consequence::StopInstances),
        Action::NoNewPlacement | Action::DrainAndRetest | Action::DrainPools | Action::Remeasure => {
            (drain(), Consequence::None)
        }
        Action::Retire => (retired(), Consequence::None),
        Action::CardLost => (retired(), Consequence::StopInstances),
    }
}

const fn severity(health: &GpuHealth) -> u8 {
    match health {
        GpuHealth::Ok => 0,
        GpuHealth::Degraded { .. } => 1,
        GpuHealth::Unresponsive { .. } => 2,
        GpuHealth::Drain { .. } => 3,
        GpuHealth::OutOfService { .. } => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(xids: &[(u32, u64)], expected: fn(&GpuHealth) -> bool, last: Consequence) {
        let mut book = HealthBook::default();
        let uuid = GpuUuid::from_bytes([1; 16]);
        let boot = BootId::new("b");
        let mut consequence = Consequence::None;
        for (xid, minute) in xids {
            consequence = book.xid(&uuid, *xid, &boot, MonoMillis::new(minute * 60_000));
        }
        assert!(expected(&book.verdict(&uuid)), "{xids:?} gave {:?}", book.verdict(&uuid));
        assert_eq!(consequence, last, "{xids:?}");
    }

    #[test]
    fn a_lost_record_of_faults_keeps_every_card_out() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let cards = [GpuUuid::from_bytes([1; 16]), GpuUuid::from_bytes([2; 16])];
        assert_eq!(HealthBook::load(&state, &cards).unwrap(), HealthBook::default(), "a fresh host");
        HealthBook::default().save(&state).unwrap();
        let path = state.file("health.json");
        for path in [path.clone(), durable_file::copy_of(&path)] {
            std::fs::write(path, "{").unwrap();
        }
        let book = HealthBook::load(&state, &cards).unwrap();
        assert!(cards.iter().all(|card| !book.verdict(card).accepts_placement()));
    }

    #[test]
    fn h1_application_xids_change_no_verdict() {
        check(&[(13, 0), (31, 10), (43, 20)], |health| *health == GpuHealth::Ok, Consequence::None);
    }

    #[test]
    fn h1_hardware_xids_drain_then_retire_and_never_get_better() {
        let drained = |health: &GpuHealth| matches!(health, GpuHealth::Drain { .. });
        let retired = |health: &GpuHealth| matches!(health, GpuHealth::OutOfService { .. });
        check(&[(48, 0)], drained, Consequence::StopInstances);
        check(&[(48, 0), (48, 1)], drained, Consequence::StopInstances);
        check(&[(48, 0), (48, 10)], retired, Consequence::StopInstances);
        check(&[(64, 0), (63, 10)], retired, Consequence::None);
        check(&[(79, 0)], retired, Consequence::StopInstances);
        check(&[(74, 0)], drained, Consequence::None);
        check(&[(94, 0)], |health| *health == GpuHealth::Ok, Consequence::StopInstances);
        check(&[(94, 0), (94, 10), (94, 20)], drained, Consequence::StopInstances);
    }
}
