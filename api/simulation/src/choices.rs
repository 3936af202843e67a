//! Seeded choices: a stream, and fates that depend on what they are about and on nothing drawn before.

/// `SplitMix64`.
#[derive(Debug, Clone)]
pub struct Choices(u64);

impl Choices {
    pub fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// The fate of one thing in one world: the same whatever else of the script is left out, so that a script can be shrunk.
    pub fn fate(seed: u64, of: &[u64]) -> Self {
        let mixed = of.iter().fold(Self::of(seed).bits(), |mixed, part| Self(mixed ^ *part).bits());
        Self(mixed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// In `[low, high)`.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = u64::try_from(high - low).expect("an empty choice");
        low + i64::try_from(self.bits() % span).expect("a span fits")
    }

    /// One of `0..count`.
    pub fn index(&mut self, count: usize) -> usize {
        usize::try_from(self.bits() % u64::try_from(count).expect("a count fits")).expect("an index fits")
    }

    pub fn percent(&mut self, chance: i64) -> bool {
        self.between(0, 100) < chance
    }

    pub fn one_of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.index(items.len())]
    }
}
