//! kill -9, again and again, with load on: whatever was acknowledged is there once, to the second and to the micro.
//!
//! A round: a real `tarn serve` is answering customers who top up, rent, stop and start, and a host that proves what runs; at a moment
//! drawn from the seed it dies by SIGKILL. While it is down the books are audited and exported as it left them, and hledger and
//! beancount check the export. Then it starts again and everybody sends again what was not answered. A world ends after some rounds:
//! everything is ended and settled, and what the customers and the host remember (nobody else's numbers) is compared with the bill.
//!
//! `make chaos-billing ROUNDS=1000` runs the long one; `TARN_CHAOS_SEED` replays one.

mod books;
mod campaign;
mod crash_points;
mod oracle;
mod scripted_host;
mod shopper;

use std::time::Duration;

/// Rounds in which one database lives, so that books stay short enough to be added up after each.
const ROUNDS_OF_A_WORLD: u32 = 20;
const ROUNDS: u32 = 4;

/// What the environment says, or what a plain `cargo test` runs.
#[expect(clippy::disallowed_methods, reason = "how make tells the test what to do")]
fn chosen(name: &str) -> Option<u64> {
    std::env::var(name).ok().filter(|text| !text.is_empty()).map(|text| text.parse().unwrap())
}

/// Numbers that a seed decides (SplitMix64).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `low` to below `high`.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.roll() % (high - low)
    }

    pub const fn millis(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_millis(self.between(low, high))
    }
}
