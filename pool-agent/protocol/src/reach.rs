//! Which donors a process proved to reach, told to those that start beside it.
//!
//! A process counts a donor only after it has imported memory of it. When hundreds start at once, each proof costs all of them a turn of
//! the processor, and in the same surroundings (namespaces, root, cgroup, user: what decides which device nodes open) the answer is
//! the same. So a proof is written down for a moment: whoever starts within it, in the same surroundings, takes it over. A word of
//! the table is written by tenant processes and can only mislead the tenant itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::broker_wire::DONORS_MAX;

/// Entries of the table: surroundings that share one give way to each other.
pub const ENTRIES: usize = 16;
/// How long a proof serves others: a burst of starts, not a change of the host.
pub const VALID_MS: u64 = 2_000;

const TICK_MS: u64 = 64;
const MASK_BITS: u32 = 15;
const TICK_BITS: u32 = 17;
const TICKS: u64 = 1 << TICK_BITS;
const _: () = assert!(DONORS_MAX <= MASK_BITS as usize && TICK_BITS + MASK_BITS == 32);

/// One word an entry, so that no reader ever sees half of one: 32 bits of the surroundings, 17 of the time, 15 of donors.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ReachTable {
    words: [AtomicU64; ENTRIES],
    /// Proofs ever written: every other start took one over.
    proofs: AtomicU64,
}

impl ReachTable {
    fn word(&self, surroundings: u32) -> &AtomicU64 {
        &self.words[surroundings as usize % ENTRIES]
    }

    /// The mask of donors that a process in these surroundings proved within the last moments. `now_ms` is `CLOCK_MONOTONIC`.
    pub fn proven(&self, surroundings: u32, now_ms: u64) -> Option<u16> {
        let word = self.word(surroundings).load(Relaxed);
        let age = (now_ms / TICK_MS).wrapping_sub(word >> MASK_BITS) % TICKS;
        let ours = word != 0 && word >> (MASK_BITS + TICK_BITS) == u64::from(surroundings);
        (ours && age * TICK_MS <= VALID_MS).then_some((word & ((1 << MASK_BITS) - 1)) as u16)
    }

    /// Writes a proof down.
    pub fn prove(&self, surroundings: u32, mask: u16, now_ms: u64) {
        let tick = now_ms / TICK_MS % TICKS;
        let word = u64::from(surroundings) << (MASK_BITS + TICK_BITS) | tick << MASK_BITS | u64::from(mask);
        self.word(surroundings).store(word, Relaxed);
        self.proofs.fetch_add(1, Relaxed);
    }

    /// How often a process tried for itself.
    pub fn proofs(&self) -> u64 {
        self.proofs.load(Relaxed)
    }

    /// A proof turned out to be wrong: whoever starts now tries for itself.
    pub fn forget(&self, surroundings: u32) {
        self.word(surroundings).store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_serves_the_same_surroundings_for_a_moment() {
        let table = ReachTable::default();
        let now = 123_456_789;
        assert_eq!(table.proven(7, now), None);
        table.prove(7, 0b101, now);
        assert_eq!(table.proven(7, now), Some(0b101));
        assert_eq!(table.proven(7, now + VALID_MS - TICK_MS), Some(0b101));
        assert_eq!(table.proven(7, now + VALID_MS + 2 * TICK_MS), None);
        assert_eq!(table.proven(7 + 16, now), None, "others in the same entry");
        table.prove(u32::MAX, 0x7fff, now);
        assert_eq!(table.proven(u32::MAX, now), Some(0x7fff));
        table.forget(u32::MAX);
        assert_eq!(table.proven(u32::MAX, now), None);
        table.prove(9, 0, now);
        assert_eq!(table.proven(9, now), Some(0), "nothing is reached, and that is known");
        assert_eq!(table.proofs(), 3);
    }
}
