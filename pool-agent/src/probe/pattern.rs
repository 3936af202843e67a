//! Where the parts of a probed chunk lie, and what they hold. Host and kernel compute the same words.

use super::words::ProbeError;

/// What the exporter fills the memory with.
pub const FIRST_SEED: u64 = 0x5eed_0001;
/// What the importer writes: by copy engine over the first half, by kernel over the second.
pub const SECOND_SEED: u64 = 0x5eed_0002;

/// Kept at the end of the chunk for counters and for the chain of addresses.
const TAIL: u64 = 64 << 10;
/// Counters are this far apart, so that no two share a line.
const COUNTER_STRIDE: u64 = 256;
const CHAIN_OFFSET: u64 = 4096;
/// Links of the chain, each on a line of its own.
pub const CHAIN_LINKS: u64 = 256;
const CHAIN_STRIDE: u64 = 128;
/// Read back by host copies at either end of the pattern.
pub const WINDOW: u64 = 64 << 10;

/// Parts of the probed memory, all offsets in bytes: two halves of the pattern, then the tail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    pub bytes: u64,
}

impl Parts {
    /// Bytes of one half; a multiple of sixteen.
    pub const fn half(self) -> u64 {
        (self.bytes - TAIL) / 32 * 16
    }

    pub const fn pattern(self) -> u64 {
        2 * self.half()
    }

    pub const fn counter(self, number: u64) -> u64 {
        self.bytes - TAIL + number * COUNTER_STRIDE
    }

    pub const fn chain(self) -> u64 {
        self.bytes - TAIL + CHAIN_OFFSET
    }

    /// The chain of addresses that begins at `chain()` of a chunk mapped at `base`: each link names the one half a chain away and one
    /// on, so that no prefetcher guesses it.
    pub fn chain_links(self, base: u64) -> Vec<u8> {
        let place = |link: u64| base + self.chain() + link % CHAIN_LINKS * CHAIN_STRIDE;
        let mut bytes = vec![0; usize::try_from(CHAIN_LINKS * CHAIN_STRIDE).unwrap_or(0)];
        let stride = usize::try_from(CHAIN_STRIDE).unwrap_or(1);
        for (link, line) in (0..CHAIN_LINKS).zip(bytes.chunks_exact_mut(stride)) {
            line[..8].copy_from_slice(&place(link + CHAIN_LINKS / 2 + 1).to_ne_bytes());
        }
        bytes
    }
}

pub use tarn_protocol::probe::mix as word;

/// `words` of the pattern from word `first` on.
pub fn fill(seed: u64, first: u64, words: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(4 * words).unwrap_or(0)];
    for (index, place) in (first..).zip(bytes.chunks_exact_mut(4)) {
        place.copy_from_slice(&word(seed, index).to_ne_bytes());
    }
    bytes
}

/// Compares memory with the pattern from word `first` on.
pub fn check(what: &'static str, seed: u64, first: u64, bytes: &[u8]) -> Result<(), ProbeError> {
    let words = bytes.chunks_exact(4).map(|chunk| chunk.try_into().map_or(0, u32::from_ne_bytes));
    for (index, found) in (first..).zip(words) {
        let expected = word(seed, index);
        if found != expected {
            return Err(ProbeError::Mismatch { what, index, found, expected });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wrong_word_is_found_and_named() {
        let mut bytes = fill(FIRST_SEED, 50, 1000);
        check("test", FIRST_SEED, 50, &bytes).unwrap();
        bytes[4 * 777] ^= 1;
        assert!(matches!(
            check("test", FIRST_SEED, 50, &bytes),
            Err(ProbeError::Mismatch { index: 827, .. })
        ));
    }

    #[test]
    fn the_parts_of_a_chunk_do_not_overlap() {
        for bytes in [2 << 20, 20 << 20, 256 << 20] {
            let parts = Parts { bytes };
            assert!(parts.half().is_multiple_of(16) && parts.pattern() <= parts.counter(0));
            assert!(parts.counter(3) + 8 <= parts.chain());
            assert!(parts.chain() + CHAIN_LINKS * CHAIN_STRIDE <= bytes);
            // Nothing but rounding is left out.
            assert!(parts.pattern() + TAIL + 32 > bytes);
        }
    }

    #[test]
    fn the_chain_visits_many_lines_before_it_repeats_one() {
        let parts = Parts { bytes: 2 << 20 };
        let links = parts.chain_links(0);
        let mut at = parts.chain();
        let mut seen = std::collections::BTreeSet::new();
        while seen.insert(at) {
            let offset = usize::try_from(at - parts.chain()).unwrap();
            at = u64::from_ne_bytes(links[offset..offset + 8].try_into().unwrap());
        }
        assert_eq!(seen.len() as u64, CHAIN_LINKS);
    }
}
