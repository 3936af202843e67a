//! The best set of cards within one host: every legal set gets a [`Score`], the least wins.
//!
//! A placement is judged by what it leaves. Single cards therefore go where they break no pair, pairs where they break no four,
//! and pools take the best link that is there before they think of anything else. The order is lexicographic, so each line of
//! [`Score`] can be argued about by itself; ties go to the lowest cards.

use std::cmp::Reverse;

use tarn_protocol::hardware::{LinkClass, LinkGrade};

use crate::card_set::CardSet;
use crate::topology::{Candidate, Floor, GROUPS, Topology};

/// Why one set is better than another: smaller is better, earlier lines first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Score {
    /// Cards shared with sets that already failed for this request.
    pub tried: u8,
    /// Cards with a health warning.
    pub warned: u8,
    /// Weakest link between primary and donors.
    pub weakest_link: Reverse<(LinkClass, LinkGrade)>,
    /// Groups that fitted before and no longer do: eights, fours and twos, each over NVLink and over any peer link.
    pub groups_lost: [u8; GROUPS.len()],
    /// PCIe switches and NUMA nodes touched.
    pub places: u8,
    /// Free cards left on the host: fill started hosts first.
    pub free_left: u8,
    /// Band of the slowest donor.
    pub slowest_band: Reverse<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    pub set: CardSet,
    pub score: Score,
}

/// What a host offers to one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table<'a> {
    pub topology: &'a Topology,
    /// Free and fit for new work.
    pub free: CardSet,
    pub warned: CardSet,
    /// Sets of this host that already failed, or single cards not to be used: none may be inside the chosen one.
    pub excluded: &'a [CardSet],
}

/// The best set of `size` cards out of `allowed`.
pub(crate) fn best(table: &Table<'_>, allowed: CardSet, size: usize, floor: Floor) -> Option<Choice> {
    let from = table.free.both(allowed);
    if from.len() < size {
        return None;
    }
    let before = table.topology.groups_in(table.free);
    let legal = |candidate: &&Candidate| {
        from.holds(candidate.set) && !table.excluded.iter().any(|failed| candidate.set.holds(*failed))
    };
    table
        .topology
        .candidates(size, floor)
        .iter()
        .filter(legal)
        .map(|candidate| Choice { set: candidate.set, score: score(table, *candidate, before) })
        .min_by_key(|choice| (choice.score, choice.set))
}

fn score(table: &Table<'_>, candidate: Candidate, before: [u8; GROUPS.len()]) -> Score {
    let left = table.free.minus(candidate.set);
    let after = table.topology.groups_in(left);
    let tried = table.excluded.iter().fold(CardSet::EMPTY, |all, failed| all.union(*failed));
    Score {
        tried: candidate.set.both(tried).count(),
        warned: candidate.set.both(table.warned).count(),
        weakest_link: Reverse(candidate.weakest),
        groups_lost: std::array::from_fn(|group| before[group] - after[group]),
        places: candidate.places,
        free_left: left.count(),
        slowest_band: Reverse(candidate.slowest_band),
    }
}
