//! The device's memory, filled: which blocks were taken, what every granule must hold.
//!
//! Each granule of 2 MiB carries the pattern in its first and last 4 KiB, so that a chunk that is mapped twice, missing or
//! cut short shows, while 96 GiB are written and read in seconds.

use crate::cuda::{Cuda, CudaError};

const GRANULE_BYTES: u64 = 2 << 20;
const SAMPLE_BYTES: u64 = 4096;
const SAMPLE_WORDS: usize = 512;
const BLOCK_BYTES_MIN: u64 = 64 << 20;

#[derive(Debug)]
pub(crate) struct Filling<'a> {
    cuda: &'a Cuda,
    /// Address and length of each block.
    blocks: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passes: u64,
    pub(crate) granules: u64,
    pub(crate) verified_bytes: u64,
    pub(crate) mismatches: u64,
    pub(crate) first_mismatch: Option<u64>,
}

impl<'a> Filling<'a> {
    /// Allocates up to a share of `total_bytes`; blocks shrink when the device has no room for a large one.
    pub(crate) fn take(
        cuda: &'a Cuda,
        total_bytes: u64,
        percent: u64,
        block_bytes: u64,
    ) -> Result<Self, CudaError> {
        let goal = total_bytes / 100 * percent.min(100);
        let mut filling = Self { cuda, blocks: Vec::new() };
        let mut block_bytes = block_bytes.max(BLOCK_BYTES_MIN);
        while block_bytes >= BLOCK_BYTES_MIN {
            let left = goal.saturating_sub(filling.allocated_bytes()) / GRANULE_BYTES * GRANULE_BYTES;
            if left == 0 {
                break;
            }
            let bytes = block_bytes.min(left);
            match cuda.allocate(bytes)? {
                Some(address) => filling.blocks.push((address, bytes)),
                None => block_bytes /= 2,
            }
        }
        Ok(filling)
    }

    pub(crate) fn first_address(&self) -> Option<u64> {
        self.blocks.first().map(|(address, _)| *address)
    }

    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.blocks.iter().map(|(_, bytes)| bytes).sum()
    }

    pub(crate) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Addresses of all samples: the two ends of each granule.
    fn samples(&self) -> impl Iterator<Item = u64> {
        self.blocks.iter().flat_map(|(start, bytes)| {
            let granules = bytes / GRANULE_BYTES;
            (0..granules).flat_map(move |at| {
                let granule = start + at * GRANULE_BYTES;
                [granule, granule + GRANULE_BYTES - SAMPLE_BYTES]
            })
        })
    }

    pub(crate) fn write(&mut self) -> Result<(), CudaError> {
        let mut words = [0; SAMPLE_WORDS];
        for address in self.samples() {
            for (word, at) in words.iter_mut().zip((address..).step_by(8)) {
                *word = pattern(at);
            }
            self.cuda.to_device(address, &words)?;
        }
        Ok(())
    }

    pub(crate) fn verify(&self) -> Result<Tally, CudaError> {
        let mut words = [0; SAMPLE_WORDS];
        let mut tally = Tally { passes: 1, ..Tally::default() };
        for address in self.samples() {
            words.fill(0);
            self.cuda.to_host(&mut words, address)?;
            for (word, at) in words.iter().zip((address..).step_by(8)) {
                if *word != pattern(at) {
                    tally.mismatches += 1;
                    tally.first_mismatch.get_or_insert(at);
                }
            }
            tally.verified_bytes += SAMPLE_BYTES;
        }
        tally.granules = tally.verified_bytes / (2 * SAMPLE_BYTES);
        Ok(tally)
    }

    pub(crate) fn give_back(self) -> Result<(), CudaError> {
        self.blocks.iter().try_for_each(|(address, _)| self.cuda.free(*address))
    }
}

/// What the eight bytes at an address must be; never zero at an aligned address.
fn pattern(address: u64) -> u64 {
    (address | 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23) ^ address
}

#[cfg(test)]
mod tests {
    use super::pattern;

    #[test]
    fn neighbouring_addresses_have_different_patterns() {
        assert_ne!(pattern(0x7000_0000), pattern(0x7000_0008));
        assert_ne!(pattern(0x7000_0000), pattern(0x7020_0000));
        assert_ne!(pattern(0), 0);
    }
}
