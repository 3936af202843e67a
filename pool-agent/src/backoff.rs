//! How long to wait before the next try, with randomness passed in.

/// Doubles from `first_ms` to `most_ms`; each wait is drawn from its upper half, so that agents that lost the same control plane
/// do not return in step.
#[derive(Debug, Clone)]
pub struct Backoff {
    first_ms: u64,
    most_ms: u64,
    failures: u32,
}

impl Backoff {
    pub const fn new(first_ms: u64, most_ms: u64) -> Self {
        Self { first_ms, most_ms, failures: 0 }
    }

    pub fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Counts one more failure; `entropy` is uniform.
    pub fn failed(&mut self, entropy: u64) -> std::time::Duration {
        let ceiling = self.first_ms.saturating_mul(1 << self.failures.min(20)).min(self.most_ms).max(2);
        self.failures = self.failures.saturating_add(1);
        std::time::Duration::from_millis(ceiling / 2 + entropy % (ceiling / 2))
    }
}

/// One draw from the system; a backoff is no place to fail, so a refused draw is simply no jitter.
pub fn entropy() -> u64 {
    let mut bytes = [0; 8];
    match getrandom::fill(&mut bytes) {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn waits_grow_stay_bounded_and_reset(draws in proptest::collection::vec(any::<u64>(), 1..40)) {
            let mut backoff = Backoff::new(200, 10_000);
            for (failures, draw) in draws.iter().enumerate() {
                let ceiling = (200u64 << failures.min(20)).min(10_000);
                let wait = u64::try_from(backoff.failed(*draw).as_millis()).unwrap();
                prop_assert!(wait >= ceiling / 2 && wait < ceiling);
            }
            backoff.succeeded();
            prop_assert!(backoff.failed(7).as_millis() < 200);
        }
    }
}
