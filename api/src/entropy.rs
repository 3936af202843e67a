//! Where random bytes come from: a parameter like time, so that a simulation can be replayed from its seed.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};

use sha2::{Digest, Sha256};

pub trait Entropy: Send + Sync + Debug {
    fn fill(&self, bytes: &mut [u8]);

    /// 128 bits, for an id.
    fn bits(&self) -> u128 {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        u128::from_be_bytes(bytes)
    }
}

/// The operating system's generator.
#[derive(Debug, Default)]
pub struct OsEntropy;

impl Entropy for OsEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the kernel's generator answers once it is seeded at boot");
    }
}

/// A reproducible stream from a seed. For simulations and tests only: whoever knows the seed knows every secret.
#[derive(Debug)]
pub struct SeededEntropy {
    seed: u64,
    drawn: AtomicU64,
}

impl SeededEntropy {
    pub const fn new(seed: u64) -> Self {
        Self { seed, drawn: AtomicU64::new(0) }
    }
}

impl Entropy for SeededEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(32) {
            let place = self.drawn.fetch_add(1, Ordering::Relaxed);
            let block = Sha256::new()
                .chain_update(self.seed.to_be_bytes())
                .chain_update(place.to_be_bytes())
                .finalize();
            chunk.copy_from_slice(&block[..chunk.len()]);
        }
    }
}
