//! Ids that follow from what they name, so that a retry makes the same id and collides harmlessly.
//!
//! The time part is an instant that never changes for the thing named; the 80 entropy bits are a 128-bit FNV-1a over the parts,
//! folded. The inputs are ids that already carry 80 random bits, so nobody chooses them; among 10^9 derived ids of one instant the
//! chance of any collision is below 10^-6, and a collision is refused by the primary key, never merged.

const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
const ENTROPY_BITS: u32 = 80;

/// Entropy for an id that names `parts`. A separator follows each part, so `["ab", "c"]` and `["a", "bc"]` differ.
pub(crate) fn entropy(parts: &[&str]) -> u128 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain(std::iter::once(0)));
    let hash = bytes.fold(OFFSET_BASIS, |hash, byte| (hash ^ u128::from(byte)).wrapping_mul(PRIME));
    (hash ^ (hash >> ENTROPY_BITS)) & ((1 << ENTROPY_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_is_stable_and_separates_parts() {
        assert_eq!(entropy(&["a", "b"]), entropy(&["a", "b"]));
        assert_ne!(entropy(&["ab", "c"]), entropy(&["a", "bc"]));
        assert_ne!(entropy(&["a"]), entropy(&["a", ""]));
        let many: std::collections::HashSet<u128> =
            (0..100_000).map(|n: u32| entropy(&["seg", &n.to_string(), "bucket"])).collect();
        assert_eq!(many.len(), 100_000);
    }
}
