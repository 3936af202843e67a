//! What the control plane wants, written down before anything acts on it, and what is too old to be obeyed.
//!
//! Each instance's latest accepted goal lies in a file of its own, so that a restart without the control plane knows what
//! to keep running and until when. The fence keeps the highest host epoch and each instance's highest generation for
//! ever (also of instances that are gone): whatever is older changes nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tarn_protocol::control::{Desired, DesiredInstance, Goal};
use tarn_protocol::ids::InstanceId;
use tarn_protocol::units::Generation;

use crate::durable_file::{self, DurableError};
use crate::failpoint::Failpoints;
use crate::rejoin;
use crate::state_dir::StateDir;

/// Instances that are gone are remembered up to this many; ids sort by creation, so the oldest are forgotten first.
const REMEMBERED_MAX: usize = 4096;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    pub host_epoch: Generation,
    pub revision: Option<i64>,
    instances: BTreeMap<InstanceId, Passed>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Passed {
    generation: Generation,
    /// The goal was `absent` at that generation: nothing of it comes back.
    gone: bool,
}

/// Why a goal was not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale {
    Epoch,
    Generation,
}

impl Fence {
    /// Whether a document of this epoch may be obeyed at all.
    pub fn admits(&self, desired: &Desired) -> Result<(), Stale> {
        if desired.host_epoch < self.host_epoch { Err(Stale::Epoch) } else { Ok(()) }
    }

    /// Notes a goal's generation; an older one, or one that would revive what is gone, is stale.
    pub fn pass(&mut self, instance: &DesiredInstance) -> Result<(), Stale> {
        let known = self.instances.get(&instance.instance_id).copied().unwrap_or_default();
        let revives = known.gone && instance.goal != Goal::Absent && instance.generation <= known.generation;
        if instance.generation < known.generation || revives {
            return Err(Stale::Generation);
        }
        let passed = Passed { generation: instance.generation, gone: instance.goal == Goal::Absent };
        self.instances.insert(instance.instance_id.clone(), passed);
        while self.instances.len() > REMEMBERED_MAX
            && let Some(oldest) =
                self.instances.iter().find(|(_, passed)| passed.gone).map(|(id, _)| id.clone())
        {
            self.instances.remove(&oldest);
        }
        Ok(())
    }
}

/// The durable side of the fence and the goals.
#[derive(Debug)]
pub struct WantedBook {
    state: StateDir,
    failpoints: Failpoints,
    fence: Fence,
}

/// What came of one document.
#[derive(Debug, Default)]
pub struct Accepted {
    pub fresh: Vec<DesiredInstance>,
    pub stale: Vec<(InstanceId, Stale)>,
}

impl WantedBook {
    pub fn open(state: &StateDir, failpoints: &Failpoints) -> Result<Self, DurableError> {
        let fence = durable_file::read_json_twice(&state.file("fence.json"), rejoin::REMEDY)?;
        let fence = fence.unwrap_or_default();
        Ok(Self { state: state.clone(), failpoints: failpoints.clone(), fence })
    }

    /// Highest revision whose goals are on disk.
    pub fn revision(&self) -> Option<i64> {
        self.fence.revision
    }

    /// Writes down what `desired` says; when this returns, it may be acted on.
    pub fn accept(&mut self, desired: &Desired) -> Result<Result<Accepted, Stale>, DurableError> {
        if let Err(stale) = self.fence.admits(desired) {
            return Ok(Err(stale));
        }
        let mut fence = self.fence.clone();
        fence.host_epoch = desired.host_epoch;
        fence.revision = Some(desired.revision);
        let mut accepted = Accepted::default();
        for instance in &desired.instances {
            match fence.pass(instance) {
                // Nothing of it is here: repeating that it should be gone costs nothing.
                Ok(()) if instance.goal == Goal::Absent && !self.state.knows(&instance.instance_id) => {}
                Ok(()) => accepted.fresh.push(instance.clone()),
                Err(stale) => accepted.stale.push((instance.instance_id.clone(), stale)),
            }
        }
        self.failpoints.hit("wanted.before_journal");
        for instance in &accepted.fresh {
            self.write_goal(instance)?;
        }
        if fence != self.fence {
            durable_file::replace_json_twice(&self.state.file("fence.json"), &fence)?;
            self.fence = fence;
        }
        self.failpoints.hit("wanted.after_journal");
        Ok(Ok(accepted))
    }

    /// What of `desired` ends something that is here. It may be acted on unwritten: should it be forgotten, it is told again.
    pub fn endings(&self, desired: &Desired) -> Vec<DesiredInstance> {
        let mut fence = self.fence.clone();
        if fence.admits(desired).is_err() {
            return Vec::new();
        }
        let ends =
            |goal: &&DesiredInstance| goal.goal != Goal::Running && self.state.knows(&goal.instance_id);
        desired.instances.iter().filter(ends).filter(|goal| fence.pass(goal).is_ok()).cloned().collect()
    }

    fn write_goal(&self, instance: &DesiredInstance) -> Result<(), DurableError> {
        let path = self.state.wanted(&instance.instance_id);
        let known: Option<DesiredInstance> = durable_file::read_json(&path).unwrap_or_default();
        if known.as_ref() == Some(instance) { Ok(()) } else { durable_file::replace_json(&path, instance) }
    }

    /// The goals of earlier runs of this agent.
    pub fn stored(&self) -> Vec<DesiredInstance> {
        let ids = self.state.known_instances();
        ids.iter().filter_map(|id| durable_file::read_json(&self.state.wanted(id)).ok().flatten()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tarn_protocol::units::Timestamp;

    pub(crate) fn instance(id: u128, generation: i64, goal: Goal) -> DesiredInstance {
        crate::instance::samples::desired(
            InstanceId::new(Timestamp::from_micros(0), id),
            Generation::new(generation),
            goal,
        )
    }

    #[test]
    fn what_is_gone_does_not_come_back_at_its_old_generation() {
        let mut fence = Fence::default();
        fence.pass(&instance(1, 3, Goal::Running)).unwrap();
        fence.pass(&instance(1, 3, Goal::Absent)).unwrap();
        assert_eq!(fence.pass(&instance(1, 3, Goal::Running)), Err(Stale::Generation));
        assert_eq!(fence.pass(&instance(1, 2, Goal::Absent)), Err(Stale::Generation));
        fence.pass(&instance(1, 4, Goal::Running)).unwrap();
    }

    #[test]
    fn a_lower_epoch_changes_nothing_on_disk() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let mut book = WantedBook::open(&state, &Failpoints::default()).unwrap();
        let mut desired = Desired {
            revision: 5,
            host_epoch: Generation::new(2),
            report_seconds: 2,
            instances: vec![instance(1, 1, Goal::Running)],
            probes: vec![],
        };
        assert_eq!(book.accept(&desired).unwrap().unwrap().fresh.len(), 1);
        desired.host_epoch = Generation::new(1);
        desired.revision = 6;
        desired.instances = vec![instance(1, 2, Goal::Absent)];
        assert_eq!(book.accept(&desired).unwrap().unwrap_err(), Stale::Epoch);
        let book = WantedBook::open(&state, &Failpoints::default()).unwrap();
        assert_eq!(book.revision(), Some(5));
        assert_eq!(book.stored()[0].goal, Goal::Running);
    }

    proptest! {
        #[test]
        fn accepted_generations_never_fall(steps in proptest::collection::vec((0u128..4, 0i64..6, 0u8..3), 1..60)) {
            let mut fence = Fence::default();
            let mut highest = std::collections::BTreeMap::new();
            for (id, generation, goal) in steps {
                let goal = [Goal::Running, Goal::Stopped, Goal::Absent][usize::from(goal)];
                if fence.pass(&instance(id, generation, goal)).is_ok() {
                    let before = highest.insert(id, generation).unwrap_or(0);
                    prop_assert!(generation >= before);
                }
            }
        }
    }
}
