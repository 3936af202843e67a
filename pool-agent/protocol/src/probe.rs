//! The kernels that prove a link with data, as PTX that any card from Volta on compiles: no host needs a toolkit.
//!
//! All parameters are 64 bits wide. Launch one-dimensional grids of any size; all but the atomics and [`CHASE`] stride over the grid.
//!
//! | entry | parameters | effect |
//! |---|---|---|
//! | [`WRITE`] | `dst`, `words`, `seed` | 32-bit word `i` of `dst` becomes [`mix`]`(seed, i)` |
//! | [`READ`] | `src`, `words`, `seed`, `mismatches` | adds the number of differing words to the `u64` at `mismatches` |
//! | [`ATOMICS`] | `target`, `adds` | every thread adds 1 to the `u32` at `target`, `adds` times |
//! | [`FLOATS`] | `target`, `adds` | the same with the `f32` at `target` |
//! | [`SWAPS`] | `target`, `adds`, `tries` | the same with the `u32`, by compare-and-swap; a thread gives up after `tries` in vain |
//! | [`REDUCTIONS`] | `target`, `adds` | the same with the `u64`, by reductions |
//! | [`STREAM_IN`] | `src`, `quads`, `passes`, `sink` | reads all `quads` of 16 bytes, `passes` times |
//! | [`STREAM_OUT`] | `dst`, `quads`, `passes`, `seed` | writes all `quads` of 16 bytes, `passes` times |
//! | [`CHASE`] | `first`, `steps`, `sink` | follows the address at `first`, `steps` times; one thread |
//!
//! Every atomic is at system scope. The simulated driver knows these entries by name and computes the same in host memory.

/// The module's text.
pub const PTX: &str = include_str!("probe.ptx");

pub const WRITE: &str = "tarn_probe_write";
pub const READ: &str = "tarn_probe_read";
pub const ATOMICS: &str = "tarn_probe_atomics";
pub const FLOATS: &str = "tarn_probe_floats";
pub const SWAPS: &str = "tarn_probe_swaps";
pub const REDUCTIONS: &str = "tarn_probe_reductions";
pub const STREAM_IN: &str = "tarn_probe_stream_in";
pub const STREAM_OUT: &str = "tarn_probe_stream_out";
pub const CHASE: &str = "tarn_probe_chase";

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
        let entries = [WRITE, READ, ATOMICS, FLOATS, SWAPS, REDUCTIONS, STREAM_IN, STREAM_OUT, CHASE];
        assert_eq!(PTX.matches(".visible .entry ").count(), entries.len());
        for entry in entries {
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
