//! Who uses a card: pools, which keep it for long, or one probe at a time. Neither disturbs the other: a probe's memory would be
//! counted as a tenant's, and a tenant's traffic would spoil a certificate.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tarn_protocol::ids::GpuUuid;

#[derive(Debug, Default)]
pub struct CardUse {
    uses: Mutex<BTreeMap<GpuUuid, Use>>,
    freed: Condvar,
}

#[derive(Debug, Default, Clone, Copy)]
struct Use {
    /// More than one for slices of one card.
    pools: u32,
    probing: bool,
}

impl CardUse {
    fn uses(&self) -> MutexGuard<'_, BTreeMap<GpuUuid, Use>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes cards for a pool; waits for probes of them to end, which their deadline bounds.
    pub fn take(&self, cards: &[GpuUuid]) {
        let mut uses = self.uses();
        for card in cards {
            uses.entry(card.clone()).or_default().pools += 1;
        }
        let busy = |uses: &BTreeMap<GpuUuid, Use>| {
            cards.iter().any(|card| uses.get(card).is_some_and(|used| used.probing))
        };
        while busy(&uses) {
            uses = self.freed.wait(uses).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub fn give_back(&self, cards: &[GpuUuid]) {
        let mut uses = self.uses();
        for card in cards {
            if let Some(used) = uses.get_mut(card) {
                used.pools = used.pools.saturating_sub(1);
            }
        }
    }

    /// Runs `probe` while no other one uses either card; `None` when a pool has one.
    pub fn probing<T>(&self, from: &GpuUuid, to: &GpuUuid, probe: impl FnOnce() -> T) -> Option<T> {
        {
            let mut uses = self.uses();
            loop {
                let of = |card: &GpuUuid| uses.get(card).copied().unwrap_or_default();
                let (first, second) = (of(from), of(to));
                if first.pools + second.pools > 0 {
                    return None;
                }
                if !first.probing && !second.probing {
                    break;
                }
                uses = self.freed.wait(uses).unwrap_or_else(PoisonError::into_inner);
            }
            for card in [from, to] {
                uses.entry(card.clone()).or_default().probing = true;
            }
        }
        let result = probe();
        let mut uses = self.uses();
        for card in [from, to] {
            uses.entry(card.clone()).or_default().probing = false;
        }
        drop(uses);
        self.freed.notify_all();
        Some(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_waits_for_a_probe_and_probes_keep_off_pools() {
        let cards = [GpuUuid::from_bytes([1; 16]), GpuUuid::from_bytes([2; 16])];
        let used = CardUse::default();
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let (inside, entered) = std::sync::mpsc::channel();
            let (used, order, cards) = (&used, &order, &cards);
            let (release, released) = std::sync::mpsc::channel::<()>();
            scope.spawn(move || {
                used.probing(&cards[0], &cards[1], || {
                    inside.send(()).unwrap();
                    released.recv().unwrap();
                    order.lock().unwrap().push("probe ended");
                })
            });
            entered.recv().unwrap();
            let taking = scope.spawn(|| {
                used.take(&cards[..1]);
                order.lock().unwrap().push("pool began");
            });
            release.send(()).unwrap();
            taking.join().unwrap();
        });
        assert_eq!(*order.lock().unwrap(), ["probe ended", "pool began"]);
        assert!(used.probing(&cards[0], &cards[1], || ()).is_none());
        used.give_back(&cards[..1]);
        assert!(used.probing(&cards[0], &cards[1], || ()).is_some());
    }
}
