//! Which pairs are probed at once: a card takes part in one probe at a time, so no probe disturbs another's bandwidth.

use tarn_protocol::ids::GpuUuid;

/// Every ordered pair of `cards`.
pub fn ordered_pairs(cards: &[GpuUuid]) -> Vec<(GpuUuid, GpuUuid)> {
    let others = |from: &GpuUuid| {
        let from = from.clone();
        cards.iter().filter(move |to| **to != from.clone()).cloned().collect::<Vec<_>>()
    };
    cards.iter().flat_map(|from| others(from).into_iter().map(|to| (from.clone(), to))).collect()
}

/// Rounds of pairs in which no card appears twice, greedily.
pub fn rounds(pairs: &[(GpuUuid, GpuUuid)], together_max: usize) -> Vec<Vec<(GpuUuid, GpuUuid)>> {
    let mut waiting = pairs.to_vec();
    let mut rounds = Vec::new();
    while !waiting.is_empty() {
        let mut round: Vec<(GpuUuid, GpuUuid)> = Vec::new();
        waiting.retain(|pair| {
            let busy = |card: &GpuUuid| round.iter().any(|(from, to)| from == card || to == card);
            let fits = round.len() < together_max.max(1) && !busy(&pair.0) && !busy(&pair.1);
            if fits {
                round.push(pair.clone());
            }
            !fits
        });
        rounds.push(round);
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_pair_is_probed_once_and_no_card_twice_at_a_time(count in 2u8..10, together in 1usize..6) {
            let cards: Vec<GpuUuid> = (0..count).map(|at| GpuUuid::from_bytes([at; 16])).collect();
            let pairs = ordered_pairs(&cards);
            prop_assert_eq!(pairs.len(), usize::from(count) * (usize::from(count) - 1));
            let rounds = rounds(&pairs, together);
            let mut seen: Vec<_> = rounds.iter().flatten().cloned().collect();
            for round in &rounds {
                let mut cards: Vec<_> = round.iter().flat_map(|(a, b)| [a, b]).collect();
                let all = cards.len();
                cards.sort();
                cards.dedup();
                prop_assert_eq!(cards.len(), all);
                prop_assert!(round.len() <= together);
            }
            seen.sort();
            let mut wanted = pairs;
            wanted.sort();
            prop_assert_eq!(seen, wanted);
        }
    }
}
