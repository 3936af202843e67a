//! Lives that began and ended between two looks, as the driver's accounting knows them. Pure: what the driver tells, in; new ones, out.
//!
//! Accounting keeps pids of the dead, so nothing can be asked of the kernel any more: who it was is told by the card alone.

use std::collections::{BTreeMap, BTreeSet};

/// What accounting tells of one pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    pub pid: u32,
    /// The driver's own stamp: tells two lives of one pid apart.
    pub started_us: u64,
    pub bytes_max: u64,
    pub running: bool,
}

#[derive(Debug, Default)]
pub struct Lives {
    /// Pid to the start of its last life that was looked at; `None` before the first look, which only learns what was there.
    known: Option<BTreeMap<u32, u64>>,
    /// Seen by a look, so told already.
    seen: BTreeSet<u32>,
}

impl Lives {
    /// Processes that a look at the card showed.
    pub fn seen(&mut self, pids: impl IntoIterator<Item = u32>) {
        self.seen.extend(pids);
    }

    /// Lives that are over and that no look ever showed. Ours are the caller's to leave out.
    pub fn missed(&mut self, told: &[Life]) -> Vec<Life> {
        let new = |life: &&Life| {
            let known = self.known.as_ref();
            known.is_some_and(|known| known.get(&life.pid) != Some(&life.started_us))
        };
        let fresh: Vec<Life> = told.iter().filter(new).copied().collect();
        let missed = fresh.iter().filter(|life| !life.running && !self.seen.contains(&life.pid));
        let missed: Vec<Life> = missed.copied().collect();
        // What still runs is looked at again once it has ended.
        let settled = told.iter().filter(|life| !life.running);
        self.known = Some(settled.map(|life| (life.pid, life.started_us)).collect());
        let running: BTreeSet<u32> = told.iter().filter(|life| life.running).map(|life| life.pid).collect();
        self.seen.retain(|pid| running.contains(pid));
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(pid: u32, started_us: u64, running: bool) -> Life {
        Life { pid, started_us, bytes_max: 1, running }
    }

    #[test]
    fn b10_only_lives_that_no_look_showed_are_missed_and_each_once() {
        let mut lives = Lives::default();
        assert!(lives.missed(&[life(1, 10, false)]).is_empty(), "from before the watch");
        assert_eq!(lives.missed(&[life(1, 10, false), life(2, 20, false)]), [life(2, 20, false)]);
        assert!(lives.missed(&[life(1, 10, false), life(2, 20, false)]).is_empty());
        // Seen while it ran: told by the look.
        lives.seen([3]);
        assert!(lives.missed(&[life(2, 20, false), life(3, 30, true)]).is_empty());
        assert!(lives.missed(&[life(2, 20, false), life(3, 30, false)]).is_empty());
        // The same pid again.
        assert_eq!(lives.missed(&[life(2, 21, false), life(3, 30, false)]), [life(2, 21, false)]);
        // Ran at one look of the accounting, unseen by the look at the card, and is over.
        assert!(lives.missed(&[life(4, 40, true)]).is_empty());
        assert_eq!(lives.missed(&[life(4, 40, false)]), [life(4, 40, false)]);
    }
}
