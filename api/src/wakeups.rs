//! Wake-ups: how a change tells workers and long-polls to look again, without telling them what they will see.
//!
//! A wake-up carries no data and may be spurious; whoever is woken re-reads the database. Losing one only delays, because every
//! waiter also looks again after a bounded time (and another replica's change is seen only that way).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tarn_protocol::ids::{HostId, InstanceId};
use tokio::sync::watch;

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Topic {
    /// An instance's state: for `wait`.
    Instance(InstanceId),
    /// What should run on a host: for the agent's long-poll.
    Desired(HostId),
    /// A worker has something to do: its name.
    Worker(&'static str),
}

#[derive(Debug, Default)]
pub struct Wakeups {
    topics: Mutex<HashMap<Topic, watch::Sender<u64>>>,
}

/// Subscribed before the read that may turn out stale, so that no change falls between reading and waiting.
#[derive(Debug)]
pub struct Subscription(watch::Receiver<u64>);

impl Subscription {
    /// Returns at the next wake-up since the subscription or the last return.
    pub async fn woken(&mut self) {
        if self.0.changed().await.is_err() {
            // The topic was dropped with no one else waiting: nothing will wake us, the caller's own deadline will.
            std::future::pending::<()>().await;
        }
    }
}

impl Wakeups {
    pub fn subscribe(&self, topic: Topic) -> Subscription {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        Subscription(topics.entry(topic).or_insert_with(|| watch::channel(0).0).subscribe())
    }

    /// Wakes whoever waits for `topic`; forgets the topic when no one does.
    pub fn wake(&self, topic: &Topic) {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(sender) = topics.get(topic) else { return };
        if sender.receiver_count() == 0 {
            topics.remove(topic);
        } else {
            sender.send_modify(|count| *count = count.wrapping_add(1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_between_subscribing_and_waiting_is_not_lost() {
        let wakeups = Wakeups::default();
        let mut waiting = wakeups.subscribe(Topic::Worker("settle"));
        wakeups.wake(&Topic::Worker("settle"));
        waiting.woken().await;
    }

    #[test]
    fn topics_that_no_one_waits_for_are_forgotten() {
        let wakeups = Wakeups::default();
        drop(wakeups.subscribe(Topic::Worker("settle")));
        wakeups.wake(&Topic::Worker("settle"));
        assert!(wakeups.topics.lock().unwrap().is_empty());
    }
}
