//! The shape of one host as placement sees it: kinds of cards, certified pairs, and which groups can still be made.
//!
//! Hosts of one build differ in UUIDs and in the last per cent of bandwidth, not in shape. So a shape is interned once, its
//! tables are computed once, and a thousand hosts share them. A pair counts only if both ordered links are certified: it takes the
//! worse class and grade of the two. Exact bandwidth stays with the host; here it is a band (a power of two).

use std::cmp::Reverse;
use std::sync::OnceLock;

use tarn_protocol::hardware::{LinkClass, LinkGrade};
use tarn_protocol::units::Bytes;

use crate::card_set::{CARDS_PER_HOST_MAX, CardSet};

/// The least link that a pool accepts between its primary and each donor. Memory behind anything less than PCIe peer access of
/// grade B is no GPU memory, so lower floors do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Floor {
    class: LinkClass,
    grade: LinkGrade,
}

impl Floor {
    pub const COUNT: usize = 4;
    pub const PEER: Self = Self { class: LinkClass::PcieP2p, grade: LinkGrade::B };
    pub const NVLINK: Self = Self { class: LinkClass::Nvlink, grade: LinkGrade::B };

    pub fn at_least(class: LinkClass, grade: LinkGrade) -> Self {
        Self { class: class.max(LinkClass::PcieP2p), grade: grade.max(LinkGrade::B) }
    }

    pub fn index(self) -> usize {
        2 * usize::from(self.class == LinkClass::Nvlink) + usize::from(self.grade == LinkGrade::A)
    }
}

/// What a card must equal to be matched with another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Kind {
    /// Place of the model's name in the fleet's table.
    pub model: u32,
    /// Smallest memory among the cards of this kind on the host; the others have at most 1 % more.
    pub memory_bytes: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Pair {
    pub class: LinkClass,
    pub grade: LinkGrade,
    pub band: u8,
}

/// What distinguishes one shape from another.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub kinds: Vec<Kind>,
    /// Which cards share a PCIe switch and NUMA node: equal numbers do.
    pub places: Vec<u8>,
    /// Row by row: `pairs[a * cards + b]`, symmetric, `None` on the diagonal and where the pair is not certified.
    pub pairs: Vec<Option<Pair>>,
    pub mig: CardSet,
    pub display: CardSet,
}

/// A set of cards that would make one pool, and what is always true of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    pub set: CardSet,
    /// Class and grade of the weakest link of the best primary; the top for a single card.
    pub weakest: (LinkClass, LinkGrade),
    pub slowest_band: u8,
    /// Switches and NUMA nodes touched.
    pub places: u8,
}

/// The groups whose survival a placement is judged by, most precious first.
pub(crate) const GROUPS: [(usize, Floor); 6] = [
    (8, Floor::NVLINK),
    (8, Floor::PEER),
    (4, Floor::NVLINK),
    (4, Floor::PEER),
    (2, Floor::NVLINK),
    (2, Floor::PEER),
];
/// On hosts of more cards than this only groups of up to `COUNTED_GROUP_MAX` are counted: a table of larger ones would cost more
/// than the hint is worth, and fours stand in for them.
const COUNTED_CARDS_MAX: usize = 12;
const COUNTED_GROUP_MAX: usize = 4;

#[derive(Debug, Clone)]
pub(crate) struct Topology {
    shape: Shape,
    /// Each kind with its cards.
    kinds: Vec<(Kind, CardSet)>,
    candidates: Vec<OnceLock<Box<[Candidate]>>>,
    /// Like `candidates` by size and floor: how many such groups fit at once into each set of cards. Empty where not counted.
    packings: Vec<OnceLock<Box<[u8]>>>,
}

impl Topology {
    pub fn new(shape: Shape) -> Self {
        let slots = (CARDS_PER_HOST_MAX + 1) * Floor::COUNT;
        let kinds = cards_by_kind(&shape.kinds);
        Self {
            shape,
            kinds,
            candidates: vec![OnceLock::new(); slots],
            packings: vec![OnceLock::new(); slots],
        }
    }

    pub fn cards(&self) -> usize {
        self.shape.kinds.len()
    }

    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Cards that match a model (any if `None`) and have at least `memory_bytes`, within the 1 % that a SKU varies.
    pub fn matching(&self, model: Option<u32>, memory_bytes: Bytes) -> CardSet {
        let fits = |kind: &Kind| {
            model.is_none_or(|model| model == kind.model) && reaches(kind.memory_bytes, memory_bytes)
        };
        let fitting = self.kinds.iter().filter(|(kind, _)| fits(kind));
        fitting.fold(CardSet::EMPTY, |all, (_, cards)| all.union(*cards))
    }

    /// All sets of `size` cards that make a pool under `floor` on an empty, healthy host.
    pub fn candidates(&self, size: usize, floor: Floor) -> &[Candidate] {
        if size > self.cards() {
            return &[];
        }
        self.candidates[size * Floor::COUNT + floor.index()].get_or_init(|| {
            CardSet::all_of_size(self.cards(), size).filter_map(|set| self.candidate(set, floor)).collect()
        })
    }

    /// How many groups of each of `GROUPS` fit at once into `cards`.
    pub fn groups_in(&self, cards: CardSet) -> [u8; GROUPS.len()] {
        GROUPS.map(|(size, floor)| self.packing(size, floor).get(cards.index()).copied().unwrap_or(0))
    }

    /// How many disjoint pools of `size` cards fit into `cards`: exact, but for large groups on large hosts, where it is greedy.
    pub fn fit_count(&self, cards: CardSet, size: usize, floor: Floor) -> u32 {
        if let Some(&count) = self.packing(size, floor).get(cards.index()) {
            return u32::from(count);
        }
        let mut left = cards;
        let mut count = 0;
        for candidate in self.candidates(size, floor) {
            if left.holds(candidate.set) {
                left = left.minus(candidate.set);
                count += 1;
            }
        }
        count
    }

    pub fn pair(&self, a: usize, b: usize) -> Option<Pair> {
        self.shape.pairs[a * self.cards() + b]
    }

    /// The weakest link from `primary` to the rest of `set`, when all of them reach `floor`.
    pub fn star(&self, primary: usize, set: CardSet, floor: Floor) -> Option<(LinkClass, LinkGrade)> {
        let mut weakest = (LinkClass::Nvlink, LinkGrade::A);
        for donor in set.minus(CardSet::one(primary)).iter() {
            let pair = self.pair(primary, donor)?;
            if pair.class < floor.class || pair.grade < floor.grade {
                return None;
            }
            weakest = weakest.min((pair.class, pair.grade));
        }
        Some(weakest)
    }

    fn candidate(&self, set: CardSet, floor: Floor) -> Option<Candidate> {
        let first = set.lowest()?;
        let matched = set.iter().all(|card| self.shape.kinds[card] == self.shape.kinds[first]);
        let banned = if set.len() > 1 { self.shape.mig.union(self.shape.display) } else { self.shape.mig };
        if !matched || !set.both(banned).is_empty() {
            return None;
        }
        let (weakest, primary) = set
            .iter()
            .filter_map(|primary| Some((self.star(primary, set, floor)?, primary)))
            .max_by_key(|&(weakest, primary)| (weakest, self.slowest_band(primary, set), Reverse(primary)))?;
        let mut places: Vec<u8> = set.iter().map(|card| self.shape.places[card]).collect();
        places.sort_unstable();
        places.dedup();
        let places = u8::try_from(places.len()).expect("at most 16 cards");
        Some(Candidate { set, weakest, slowest_band: self.slowest_band(primary, set), places })
    }

    fn slowest_band(&self, primary: usize, set: CardSet) -> u8 {
        let donors = set.minus(CardSet::one(primary));
        donors.iter().filter_map(|donor| Some(self.pair(primary, donor)?.band)).min().unwrap_or(u8::MAX)
    }

    fn packing(&self, size: usize, floor: Floor) -> &[u8] {
        let cards = self.cards();
        let counted = size <= cards && (cards <= COUNTED_CARDS_MAX || size <= COUNTED_GROUP_MAX);
        if !counted {
            return &[];
        }
        self.packings[size * Floor::COUNT + floor.index()].get_or_init(|| self.pack(size, floor))
    }

    fn pack(&self, size: usize, floor: Floor) -> Box<[u8]> {
        let cards = self.cards();
        let mut by_lowest = vec![Vec::new(); cards];
        for candidate in self.candidates(size, floor) {
            let lowest = candidate.set.lowest().expect("a candidate has cards");
            by_lowest[lowest].push(candidate.set);
        }
        let mut table = vec![0u8; 1 << cards].into_boxed_slice();
        for bits in 1..1u32 << cards {
            let set = CardSet::from_bits(u16::try_from(bits).expect("at most 16 cards"));
            let lowest = set.lowest().expect("not empty");
            let without = table[set.minus(CardSet::one(lowest)).index()];
            let fitting = by_lowest[lowest].iter().filter(|group| set.holds(**group));
            let with = fitting.map(|group| 1 + table[set.minus(*group).index()]).max();
            table[set.index()] = with.unwrap_or(0).max(without);
        }
        table
    }
}

fn cards_by_kind(kinds: &[Kind]) -> Vec<(Kind, CardSet)> {
    let mut distinct = kinds.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let cards =
        |wanted: Kind| (0..).zip(kinds).filter(move |(_, kind)| **kind == wanted).map(|(card, _)| card);
    distinct.into_iter().map(|kind| (kind, cards(kind).collect())).collect()
}

/// Whether `have` is `want` within 1 %, or more.
pub(crate) fn reaches(have: Bytes, want: Bytes) -> bool {
    have >= want || u128::from(have.get()) * 100 >= u128::from(want.get()) * 99
}
