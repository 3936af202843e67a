//! Who uses a card: pools, which keep it for long, or one probe at a time. Neither disturbs the other: a probe's memory would be
//! counted as a tenant's, and a tenant's traffic would spoil a certificate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use tarn_protocol::ids::GpuUuid;

#[derive(Debug, Default)]
pub struct CardUse {
    books: Mutex<Books>,
    freed: Condvar,
}

/// An ordered pair of cards, as a certificate names it.
pub type Pair = (GpuUuid, GpuUuid);

#[derive(Debug, Default)]
struct Books {
    uses: BTreeMap<GpuUuid, Use>,
    /// Probes that could not be made because a pool had a card.
    owed: BTreeSet<Pair>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Use {
    /// More than one for slices of one card.
    pools: u32,
    probing: bool,
}

impl CardUse {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes cards for a pool; waits for probes of them to end, which their deadline bounds.
    pub fn take(&self, cards: &[GpuUuid]) {
        let mut books = self.books();
        for card in cards {
            books.uses.entry(card.clone()).or_default().pools += 1;
        }
        let busy =
            |books: &Books| cards.iter().any(|card| books.uses.get(card).is_some_and(|used| used.probing));
        while busy(&books) {
            books = self.freed.wait(books).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Answers the probes that were owed and can be made now.
    #[must_use]
    pub fn give_back(&self, cards: &[GpuUuid]) -> Vec<Pair> {
        let mut books = self.books();
        for card in cards {
            if let Some(used) = books.uses.get_mut(card) {
                used.pools = used.pools.saturating_sub(1);
            }
        }
        let Books { uses, owed } = &mut *books;
        let free = |card: &GpuUuid| uses.get(card).is_none_or(|used| used.pools == 0);
        let (due, still): (BTreeSet<Pair>, BTreeSet<Pair>) =
            std::mem::take(owed).into_iter().partition(|(from, to)| free(from) && free(to));
        *owed = still;
        due.into_iter().collect()
    }

    /// Runs `probe` while no other one uses either card; `None` when a pool has one: then the probe is owed.
    pub fn probing<T>(&self, from: &GpuUuid, to: &GpuUuid, probe: impl FnOnce() -> T) -> Option<T> {
        {
            let mut books = self.books();
            loop {
                let of = |card: &GpuUuid| books.uses.get(card).copied().unwrap_or_default();
                let (first, second) = (of(from), of(to));
                if first.pools + second.pools > 0 {
                    books.owed.insert((from.clone(), to.clone()));
                    return None;
                }
                if !first.probing && !second.probing {
                    break;
                }
                books = self.freed.wait(books).unwrap_or_else(PoisonError::into_inner);
            }
            for card in [from, to] {
                books.uses.entry(card.clone()).or_default().probing = true;
            }
        }
        let result = probe();
        let mut books = self.books();
        for card in [from, to] {
            books.uses.entry(card.clone()).or_default().probing = false;
        }
        drop(books);
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
        let owed = used.give_back(&cards[..1]);
        assert_eq!(owed, [(cards[0].clone(), cards[1].clone())]);
        assert!(used.probing(&cards[0], &cards[1], || ()).is_some());
        assert!(used.give_back(&cards[..1]).is_empty(), "owed once");
    }
}
