//! The pattern of a probe and where its parts lie. Host and kernel compute the same words.

use super::words::ProbeError;

/// What the exporter fills the memory with.
pub const FIRST_SEED: u64 = 0x5eed_0001;
/// What the importer writes by copy over the first half, by kernel over the second.
pub const SECOND_SEED: u64 = 0x5eed_0002;
/// Additions of the atomics test.
pub const ATOMIC_THREADS: u64 = 1024;
pub const ATOMIC_PER_THREAD: u64 = 64;

/// Parts of the probed memory, in words of four bytes. The last page is the counter's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    pub bytes: u64,
}

impl Parts {
    pub const fn half_words(self) -> u64 {
        (self.bytes - 4096) / 8
    }

    pub const fn pattern_words(self) -> u64 {
        2 * self.half_words()
    }

    /// Where the second half begins.
    pub const fn second_half(self) -> u64 {
        4 * self.half_words()
    }

    pub const fn counter(self) -> u64 {
        self.bytes - 4096
    }
}

pub use tarn_protocol::probe::mix as word;

pub fn fill(seed: u64, words: u64) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(4 * words).unwrap_or(0)];
    for (index, place) in (0..words).zip(bytes.chunks_exact_mut(4)) {
        place.copy_from_slice(&word(seed, index).to_ne_bytes());
    }
    bytes
}

/// Compares memory with the pattern.
pub fn check(what: &'static str, seed: u64, bytes: &[u8]) -> Result<(), ProbeError> {
    if bytes == fill(seed, bytes.len() as u64 / 4) {
        return Ok(());
    }
    let words = bytes.chunks_exact(4).map(|chunk| chunk.try_into().map_or(0, u32::from_ne_bytes));
    for (index, found) in (0u64..).zip(words) {
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
        let mut bytes = fill(FIRST_SEED, 1000);
        check("test", FIRST_SEED, &bytes).unwrap();
        bytes[4 * 777] ^= 1;
        assert!(matches!(check("test", FIRST_SEED, &bytes), Err(ProbeError::Mismatch { index: 777, .. })));
        let parts = Parts { bytes: 2 << 20 };
        assert!(parts.counter() >= 4 * parts.pattern_words());
    }
}
