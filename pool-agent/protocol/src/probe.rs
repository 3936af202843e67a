//! The kernels that prove a link with data, as PTX that any card from Volta on compiles.
//!
//! All parameters are 64 bits wide. Launch one-dimensional grids of any size; `write` and `read` stride over the grid.
//!
//! | entry | parameters | effect |
//! |---|---|---|
//! | [`WRITE`] | `dst`, `words`, `seed` | 32-bit word `i` of `dst` becomes [`mix`]`(seed, i)` |
//! | [`READ`] | `src`, `words`, `seed`, `mismatches` | adds the number of differing words to the `u64` at `mismatches` |
//! | [`ATOMICS`] | `target`, `adds` | every thread adds 1 to the `u32` at `target`, `adds` times, at system scope |
//!
//! The simulated driver knows these entries by name and computes the same in host memory.

/// The module's text.
pub const PTX: &str = include_str!("probe.ptx");

pub const WRITE: &str = "tarn_probe_write";
pub const READ: &str = "tarn_probe_read";
pub const ATOMICS: &str = "tarn_probe_atomics";

/// The pattern's word `index`; only the low 32 bits of both arguments matter.
pub const fn mix(seed: u64, index: u64) -> u32 {
    let (seed, index) = (low(seed), low(index));
    let mut word = seed.wrapping_mul(0x9E37_79B1).wrapping_add(index.wrapping_mul(0x85EB_CA77));
    word ^= word >> 15;
    word = word.wrapping_mul(0x2C1B_3C6D);
    word ^ (word >> 13)
}

const fn low(value: u64) -> u32 {
    (value & 0xffff_ffff) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_entries_that_are_named() {
        for entry in [WRITE, READ, ATOMICS] {
            assert_eq!(PTX.matches(&format!(".visible .entry {entry}(")).count(), 1);
        }
    }

    #[test]
    fn neighbouring_words_and_seeds_differ() {
        assert_ne!(mix(1, 0), mix(1, 1));
        assert_ne!(mix(1, 0), mix(2, 0));
        assert_eq!(mix(1, 5), mix(1 << 32 | 1, 1 << 32 | 5));
    }
}
