//! One unit of work: its instant, where its ids come from, and who must look again once it is committed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tarn_protocol::ids::{HostId, InstanceId, TenantId};
use tarn_protocol::units::Timestamp;

use crate::entropy::Entropy;
use crate::failpoint::Failpoints;
use crate::state::AppState;
use crate::wakeups::{Topic, Wakeups};

/// Names of the workers that a change may wake.
pub const RECONCILE: &str = "reconcile";
pub const EXHAUST: &str = "exhaust";
pub const COLLECT: &str = "collect";

#[derive(Debug, Clone)]
pub struct Act {
    pub now: Timestamp,
    entropy: Arc<dyn Entropy>,
    failpoints: Failpoints,
    topics: Vec<Topic>,
    /// Tenants whose burn changed: their exhaustion is computed again before the commit.
    pub rearm: BTreeSet<TenantId>,
}

impl Act {
    pub fn at(state: &AppState, now: Timestamp) -> Self {
        let (entropy, failpoints) = (Arc::clone(&state.entropy), state.failpoints.clone());
        Self { now, entropy, failpoints, topics: Vec::new(), rearm: BTreeSet::new() }
    }

    /// 128 random bits, for an id.
    pub fn bits(&self) -> u128 {
        self.entropy.bits()
    }

    /// A place at which a test may make this process die.
    pub fn hit(&self, place: &'static str) {
        self.failpoints.hit(place);
    }

    pub fn changed_instance(&mut self, id: &InstanceId) {
        self.topics.push(Topic::Instance(id.clone()));
    }

    pub fn changed_desired(&mut self, id: &HostId) {
        self.topics.push(Topic::Desired(id.clone()));
    }

    pub fn woke(&mut self, worker: &'static str) {
        self.topics.push(Topic::Worker(worker));
    }

    /// Once committed: tells everybody who waits.
    pub fn announce(&self, wakeups: &Wakeups) {
        for topic in &self.topics {
            wakeups.wake(topic);
        }
    }
}

/// Carries an act out of a transaction that may run several times: the last one put is the one that committed.
#[derive(Debug, Clone, Default)]
pub struct Announcement(Arc<Mutex<Option<Act>>>);

impl Announcement {
    pub fn put(&self, act: Act) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(act);
    }

    pub fn announce(&self, wakeups: &Wakeups) {
        if let Some(act) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            act.announce(wakeups);
        }
    }
}
