//! How a process's memory grows, and so what its requests leave free on the primary.
//!
//! Weights come first and activations after them, often of the very same size, and a framework's cache keeps what it was given: an
//! activation that once went far stays far. So while a model loads, large requests leave the whole reserve alone, as long as donors
//! have room; what comes later may use it. Kernels and copies are not watched, since that would cost each of them: the rhythm of the
//! requests tells.
//!
//! * A request is *large* from the policy's size on, or when live requests of just its size since the last pause make a quarter of the
//!   reserve: a model that is taken in handles of 20 MiB or in layers of 32 MiB is a large request, made piece by piece. Below 2 MiB
//!   nothing is large.
//! * Handles of the virtual memory interface come one by one, whatever they are for, and one size tells nothing of that (20 MiB in PyTorch's
//!   expandable segments). What is opened to the device at once is the *burst* that somebody asked for. One that is not large, by the same
//!   rules, is brought to the primary before it is opened, when its handles were taken for a model's (see `entry::opening`).
//! * *Loading* ends with a pause: four times the mean time between its large requests, at least a tenth of a second, at most ten; or
//!   by the program's word (`tarn_loaded`).
//! * After a pause, a burst of large requests may take half of what is left of the reserve, and never its last quarter. One that does not
//!   fit in there whole leaves all of it, as before: a cache of keys and values is no activation.
//! * A large block that spilled and was freed within a second was short-lived: the next few of its size may use all of the reserve.
//! * Where the primary has twice its reserve free, a pause changes nothing: loading goes on, or another model comes.
//!
//! A wrong guess costs speed, never memory: what is kept is kept only while donors have room, and once they are full everything may be
//! taken. A loader that rests near its end gives away half of the reserve at each rest, down to the last quarter.

use crate::placement::Rules;

/// Sizes that are told apart.
const SIZES_MAX: usize = 8;
/// How often in a row a short-lived size may use the reserve, so that a model which was freed at once does not open it to the next one.
const CREDITS_MAX: u8 = 4;
const SHORT_LIVED_MS: u64 = 1_000;
const PAUSE_LEAST_MS: u64 = 100;
const PAUSE_MOST_MS: u64 = 10_000;
/// A pause, in mean times between large requests.
const PAUSE_GAPS: u64 = 4;
/// The last part of the reserve that no late burst takes, and what requests of one size may take as small ones.
const QUARTER: u64 = 4;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Loading,
    /// After a pause. What large requests of this burst leave, once its first has seen the cards.
    Late { keep_bytes: Option<u64> },
}

#[derive(Debug, Default)]
pub(crate) struct Growth {
    stage: Stage,
    last_large_ms: Option<u64>,
    /// Times between large requests while loading: their sum and number.
    gaps: (u64, u64),
    /// Bytes that requests below the large size took in this burst and that live, by size; the latest last.
    sizes: Vec<(u64, u64)>,
    /// Bytes of handles that were opened in this burst and that live, by how many at once; the latest last.
    opened: Vec<(u64, u64)>,
    /// Short-lived sizes and how often they may still use the reserve; the latest last.
    short_lived: Vec<(u64, u8)>,
}

/// The entry of `size`, made if need be at the cost of the oldest.
fn entry<T: Default>(entries: &mut Vec<(u64, T)>, size: u64) -> &mut T {
    if let Some(at) = entries.iter().position(|(known, _)| *known == size) {
        entries[at..].rotate_left(1);
    } else {
        if entries.len() == SIZES_MAX {
            entries.remove(0);
        }
        entries.push((size, T::default()));
    }
    let last = entries.len() - 1;
    &mut entries[last].1
}

/// What requests of one size may take as small ones. A policy under which nothing is large has no runs either.
fn run_bytes(rules: Rules) -> u64 {
    rules.large_bytes.max(rules.reserve_bytes / QUARTER)
}

impl Growth {
    /// A request of at least 2 MiB comes: whether it is large.
    pub(crate) fn meet(&mut self, bytes: u64, rules: Rules, now_ms: u64) -> bool {
        let loading = self.stage == Stage::Loading;
        let rested_ms = self.last_large_ms.map_or(0, |last| now_ms.saturating_sub(last));
        if rested_ms >= self.pause_ms(rules) {
            self.pause();
        }
        if self.spend_credit(bytes, rules) || !self.is_large(bytes, rules) {
            return false;
        }
        if loading && self.last_large_ms.is_some() {
            self.gaps = (self.gaps.0 + rested_ms.min(PAUSE_MOST_MS), self.gaps.1 + 1);
        }
        self.last_large_ms = Some(now_ms);
        true
    }

    /// What a large request of `bytes` leaves free on the primary, which has `left_bytes` free.
    pub(crate) fn keep(&mut self, bytes: u64, left_bytes: u64, rules: Rules) -> u64 {
        let reserve = rules.reserve_bytes;
        let Stage::Late { keep_bytes } = self.stage else { return reserve };
        if keep_bytes.is_none() && left_bytes >= reserve.saturating_mul(2) {
            self.stage = Stage::Loading;
            return reserve;
        }
        let keep = keep_bytes.unwrap_or_else(|| (left_bytes.min(reserve) / 2).max(reserve / QUARTER));
        self.stage = Stage::Late { keep_bytes: Some(keep) };
        if left_bytes.saturating_sub(keep) >= bytes { keep } else { reserve }
    }

    /// What comes from now on is late.
    pub(crate) fn pause(&mut self) {
        self.stage = Stage::Late { keep_bytes: None };
        self.sizes.clear();
        self.opened.clear();
    }

    /// Handles of `bytes` in all are opened at once: whether that is a small request.
    pub(crate) fn opens_small(&mut self, bytes: u64, rules: Rules) -> bool {
        if bytes >= rules.large_bytes {
            return false;
        }
        let taken = entry(&mut self.opened, bytes);
        *taken = taken.saturating_add(bytes);
        *taken <= run_bytes(rules)
    }

    /// A handle that was opened with `burst_bytes` is gone.
    pub(crate) fn closed(&mut self, burst_bytes: u64, bytes: u64) {
        if let Some((_, taken)) = self.opened.iter_mut().find(|(size, _)| *size == burst_bytes) {
            *taken = taken.saturating_sub(bytes);
        }
    }

    /// A block is freed.
    pub(crate) fn freed(&mut self, bytes: u64) {
        if let Some((_, taken)) = self.sizes.iter_mut().find(|(size, _)| *size == bytes) {
            *taken = taken.saturating_sub(bytes);
        }
    }

    /// It had spilled, and was made `age_ms` ago.
    pub(crate) fn lived(&mut self, bytes: u64, age_ms: u64) {
        if age_ms <= SHORT_LIVED_MS {
            let credits = entry(&mut self.short_lived, bytes);
            *credits = (*credits + 1).min(CREDITS_MAX);
        }
    }

    fn pause_ms(&self, rules: Rules) -> u64 {
        let mean = self.gaps.0.checked_div(self.gaps.1).unwrap_or(0);
        rules.pause_ms.unwrap_or((mean * PAUSE_GAPS).clamp(PAUSE_LEAST_MS, PAUSE_MOST_MS))
    }

    fn spend_credit(&mut self, bytes: u64, rules: Rules) -> bool {
        let known = self.short_lived.iter_mut().find(|(size, credits)| *size == bytes && *credits > 0);
        match known.filter(|_| bytes <= rules.reserve_bytes) {
            Some((_, credits)) => {
                *credits -= 1;
                true
            }
            None => false,
        }
    }

    fn is_large(&mut self, bytes: u64, rules: Rules) -> bool {
        if bytes >= rules.large_bytes {
            return true;
        }
        let taken = entry(&mut self.sizes, bytes);
        *taken = taken.saturating_add(bytes);
        *taken > run_bytes(rules)
    }
}

#[cfg(test)]
mod tests;
