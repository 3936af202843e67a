//! A set of cards of one host, as bits over their places in the host's slot order.

/// Most cards that one host may have.
pub const CARDS_PER_HOST_MAX: usize = 16;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CardSet(u16);

impl CardSet {
    pub const EMPTY: Self = Self(0);

    /// The first `count` cards.
    #[cfg(test)]
    pub fn first(count: usize) -> Self {
        debug_assert!(count <= CARDS_PER_HOST_MAX);
        Self(if count >= 16 { u16::MAX } else { (1 << count) - 1 })
    }

    pub fn one(card: usize) -> Self {
        debug_assert!(card < CARDS_PER_HOST_MAX);
        Self(1 << card)
    }

    pub const fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    pub const fn index(self) -> usize {
        self.0 as usize
    }

    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The same, as the small number that scores hold.
    pub fn count(self) -> u8 {
        u8::try_from(self.0.count_ones()).expect("at most 16 bits")
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub const fn holds(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub const fn lowest(self) -> Option<usize> {
        if self.0 == 0 { None } else { Some(self.0.trailing_zeros() as usize) }
    }

    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let card = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some(card)
        })
    }

    /// Every subset of the first `cards` cards that has `size` members, in ascending order of bits.
    pub fn all_of_size(cards: usize, size: usize) -> impl Iterator<Item = Self> {
        let limit = 1u32 << cards;
        let mut bits = (1u32 << size) - 1;
        let none = size == 0 || size > cards;
        std::iter::from_fn(move || {
            if none || bits >= limit {
                return None;
            }
            let found = Self(u16::try_from(bits).expect("at most 16 cards"));
            let low = bits & bits.wrapping_neg();
            let ripple = bits + low;
            bits = (((ripple ^ bits) >> 2) / low) | ripple;
            Some(found)
        })
    }
}

impl FromIterator<usize> for CardSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cards: I) -> Self {
        cards.into_iter().fold(Self::EMPTY, |set, card| set.union(Self::one(card)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_subset_of_a_size_comes_once_and_in_order() {
        for (cards, size, count) in
            [(8, 4, 70), (8, 1, 8), (8, 8, 1), (16, 8, 12_870), (4, 5, 0), (0, 1, 0), (8, 0, 0)]
        {
            let found: Vec<CardSet> = CardSet::all_of_size(cards, size).collect();
            assert_eq!(found.len(), count, "{size} of {cards}");
            assert!(found.iter().all(|set| set.len() == size && CardSet::first(cards).holds(*set)));
            assert!(found.is_sorted_by(|a, b| a < b));
        }
    }
}
