//! Read-modify-write at system scope, by both cards at once on the same words: what an unmodified kernel relies on when it counts.

use tarn_protocol::hardware::AtomicTrial;
use tarn_protocol::probe::{ATOMICS, FLOATS, PTX, REDUCTIONS, SWAPS};

use super::cuda::{self, Address};
use super::pattern::Parts;
use super::stream::{Grid, Kernel, Stream, load};
use super::words::ProbeError;

/// In the order of their counters.
pub const KINDS: [&str; 4] = ["add_u32", "add_f32", "cas_u32", "red_u64"];
const ENTRIES: [&str; 4] = [ATOMICS, FLOATS, SWAPS, REDUCTIONS];

const PER_THREAD: u64 = 64;
const GRID: Grid = Grid { blocks: 4, threads: 256 };
/// Fewer, because threads that swap the same word mostly swap in vain.
const SWAPPING: Grid = Grid { blocks: 1, threads: 128 };
const SWAP_KIND: usize = 2;
/// Swaps in vain in a row after which a thread gives up.
const TRIES: u64 = 1 << 20;

fn grid(kind: usize) -> Grid {
    if kind == SWAP_KIND { SWAPPING } else { GRID }
}

/// Operations of one card on one counter.
pub fn operations(kind: usize) -> u64 {
    let grid = grid(kind);
    u64::from(grid.blocks) * u64::from(grid.threads) * PER_THREAD
}

/// Runs every kind on its counter; returns the nanoseconds of each.
pub fn run(stream: &Stream, chunk: Address, parts: Parts) -> Result<Vec<u64>, ProbeError> {
    let kernels: [Kernel; 4] = load(PTX, ENTRIES)?;
    let mut nanos = Vec::new();
    for (kind, kernel) in kernels.into_iter().enumerate() {
        let counter = chunk + parts.counter(kind as u64);
        let parameters = [counter, PER_THREAD, TRIES];
        let count = if kind == SWAP_KIND { 3 } else { 2 };
        nanos.push(stream.timed(|| stream.launch(kernel, grid(kind), &parameters[..count]))?);
    }
    Ok(nanos)
}

/// The sums, as the card that owns them sees them.
pub fn sums(chunk: Address, parts: Parts) -> Result<Vec<u64>, ProbeError> {
    (0..KINDS.len())
        .map(|kind| {
            let bytes = cuda::download(chunk + parts.counter(kind as u64), 8)?;
            Ok(sum(kind, bytes.try_into().map_or(0, u64::from_ne_bytes)))
        })
        .collect()
}

/// What a counter's eight bytes mean. Words of four bytes lie in the lower ones.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a float beyond every whole sum is a wrong sum either way
fn sum(kind: usize, bytes: u64) -> u64 {
    let word = bytes as u32;
    match KINDS[kind] {
        "add_f32" => f32::from_bits(word) as u64,
        "red_u64" => bytes,
        _ => u64::from(word),
    }
}

/// Joins what both processes know. Lost updates are a lower grade; a sum that no loss explains is a broken link.
pub fn trials(sums: &[u64], far_nanos: &[u64]) -> Result<Vec<AtomicTrial>, ProbeError> {
    let trial = |(kind, found): (usize, &u64)| {
        let expected = 2 * operations(kind);
        if *found == 0 || *found > expected {
            return Err(ProbeError::Sum { kind: KINDS[kind], found: *found, expected });
        }
        let nanos = far_nanos.get(kind).copied().unwrap_or(0);
        let per_second = operations(kind).saturating_mul(1_000_000_000).checked_div(nanos).unwrap_or(0);
        Ok(AtomicTrial { kind: KINDS[kind].to_owned(), expected, found: *found, per_second })
    };
    sums.iter().enumerate().take(KINDS.len()).map(trial).collect()
}

/// Whether every update of every kind arrived.
pub fn native(trials: &[AtomicTrial]) -> bool {
    trials.len() == KINDS.len() && trials.iter().all(|trial| trial.found == trial.expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(add: u64, float: u64, swap: u64, reduction: u64) -> Option<bool> {
        let nanos = [1000; 4];
        trials(&[add, float, swap, reduction], &nanos).ok().map(|found| native(&found))
    }

    #[test]
    fn lost_updates_are_no_native_atomics_and_other_sums_are_a_broken_link() {
        let (all, swaps) = (2 * operations(0), 2 * operations(2));
        assert_eq!(check(all, all, swaps, all), Some(true));
        assert_eq!(check(all, all - 1, swaps, all), Some(false));
        assert_eq!(check(all, all, 1, all), Some(false));
        assert_eq!(check(all, all, swaps, 0), None);
        assert_eq!(check(all + 1, all, swaps, all), None);
        assert!(!native(&[]));
    }

    #[test]
    fn sums_are_read_by_their_kind() {
        assert_eq!(sum(1, u64::from(131_072f32.to_bits())), 131_072);
        assert_eq!(sum(0, 7 | 9 << 32), 7);
        assert_eq!(sum(3, 7 | 9 << 32), 7 | 9 << 32);
        // A float holds every sum exactly.
        assert!(2 * operations(1) < 1 << 24);
    }
}
