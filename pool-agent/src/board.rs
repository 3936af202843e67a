//! What this agent process has seen and not yet told: instances as they are, and events since the last accepted report.
//!
//! Workers and watchers post here; the report loop reads. Posting never waits for the network.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tarn_protocol::control::{GpuEvent, ObservedInstance};
use tarn_protocol::hardware::LinkProbe;
use tarn_protocol::ids::{GpuUuid, InstanceId};
use tarn_protocol::units::MonoMillis;
use tokio::sync::Notify;

/// Events and probes beyond this are dropped oldest first: the latest say most.
const PENDING_MAX: usize = 1024;

#[derive(Debug, Default)]
pub struct Board {
    posts: Mutex<Posts>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Posts {
    instances: BTreeMap<InstanceId, ObservedInstance>,
    events: Pending<GpuEvent>,
    probes: Pending<LinkProbe>,
    /// Cards on which nothing may go on, with the reason.
    fallen: BTreeMap<GpuUuid, String>,
    desired_revision: Option<i64>,
}

/// Items with running numbers, so that exactly those that a report carried are dropped when it is accepted.
#[derive(Debug)]
struct Pending<T> {
    items: Vec<(u64, T)>,
    next: u64,
}

impl<T> Default for Pending<T> {
    fn default() -> Self {
        Self { items: Vec::new(), next: 0 }
    }
}

impl<T: Clone> Pending<T> {
    fn push(&mut self, item: T) {
        self.items.push((self.next, item));
        self.next += 1;
        let excess = self.items.len().saturating_sub(PENDING_MAX);
        self.items.drain(..excess);
    }

    fn all(&self) -> Vec<T> {
        self.items.iter().map(|(_, item)| item.clone()).collect()
    }

    fn forget_before(&mut self, number: u64) {
        self.items.retain(|(at, _)| *at >= number);
    }
}

/// One reading of the board.
#[derive(Debug)]
pub struct Reading {
    pub instances: Vec<ObservedInstance>,
    pub events: Vec<GpuEvent>,
    pub probes: Vec<LinkProbe>,
    pub desired_revision: Option<i64>,
    events_through: u64,
    probes_through: u64,
}

impl Board {
    fn posts(&self) -> MutexGuard<'_, Posts> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the report loop when what it would say of the instance's phase differs.
    pub fn instance(&self, observed: ObservedInstance) {
        let mut posts = self.posts();
        let known = posts.instances.get(&observed.instance_id);
        let news = known
            .is_none_or(|known| known.phase != observed.phase || known.generation != observed.generation);
        posts.instances.insert(observed.instance_id.clone(), observed);
        drop(posts);
        if news {
            self.changed.notify_one();
        }
    }

    pub fn knows(&self, id: &InstanceId) -> bool {
        self.posts().instances.contains_key(id)
    }

    pub fn removed(&self, id: &InstanceId) {
        self.posts().instances.remove(id);
        self.changed.notify_one();
    }

    /// One that would share card, instant and code with another waiting one is moved by a millisecond: that is its name.
    pub fn event(&self, mut event: GpuEvent) {
        tracing::warn!(gpu = %event.uuid, xid = event.xid, detail = event.detail, "gpu event");
        let mut posts = self.posts();
        let name = |event: &GpuEvent| (event.uuid.clone(), event.mono_ms, event.xid);
        while posts.events.items.iter().any(|(_, known)| name(known) == name(&event)) {
            event.mono_ms = MonoMillis::new(event.mono_ms.get() + 1);
        }
        posts.events.push(event);
        drop(posts);
        self.changed.notify_one();
    }

    pub fn probe(&self, probe: LinkProbe) {
        self.posts().probes.push(probe);
        self.changed.notify_one();
    }

    pub fn card_fell(&self, uuid: &GpuUuid, reason: &str) {
        self.posts().fallen.insert(uuid.clone(), reason.to_owned());
        self.changed.notify_one();
    }

    /// The first of `cards` on which nothing may go on.
    pub fn fallen<'a>(&self, cards: impl IntoIterator<Item = &'a GpuUuid>) -> Option<(GpuUuid, String)> {
        let posts = self.posts();
        let mut found = cards.into_iter().filter_map(|card| posts.fallen.get_key_value(card));
        found.next().map(|(card, reason)| (card.clone(), reason.clone()))
    }

    pub fn cards_recovered(&self, cards: &BTreeSet<GpuUuid>) {
        self.posts().fallen.retain(|card, _| !cards.contains(card));
    }

    pub fn desired_journaled(&self, revision: i64) {
        self.posts().desired_revision = Some(revision);
        self.changed.notify_one();
    }

    pub fn wake(&self) {
        self.changed.notify_one();
    }

    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    pub fn read(&self) -> Reading {
        let posts = self.posts();
        Reading {
            instances: posts.instances.values().cloned().collect(),
            events: posts.events.all(),
            probes: posts.probes.all(),
            desired_revision: posts.desired_revision,
            events_through: posts.events.next,
            probes_through: posts.probes.next,
        }
    }

    /// The control plane has what `reading` carried.
    pub fn told(&self, reading: &Reading) {
        let mut posts = self.posts();
        posts.events.forget_before(reading.events_through);
        posts.probes.forget_before(reading.probes_through);
    }
}
