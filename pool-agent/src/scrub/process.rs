//! The scrubber itself: one card, everything that is free on it, once.

use serde::{Deserialize, Serialize};
use tarn_protocol::ids::GpuUuid;

use crate::probe::cuda::{self, Address, Card};
use crate::probe::stream::Stream;
use crate::probe::words::ProbeError;

/// The first piece that is tried, and the last.
const PIECE_MAX: u64 = 1 << 30;
const PIECE_MIN: u64 = 2 << 20;
/// Looked at, at both ends of every stretch.
const WINDOW: u64 = 64 << 10;
const STRETCH: u64 = 256 << 20;

/// The scrubber's last line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scrubbed {
    pub bytes: u64,
    pub nanos: u64,
    /// Bytes that were looked at, before and after.
    pub sampled_bytes: u64,
    /// Of those, what was not zero before: a former tenant's, had nobody come.
    pub dirty_bytes: u64,
    /// Of those, what was not zero after.
    pub unclean_bytes: u64,
    /// Not reached: the scrubber's own context, and what is too small a piece.
    pub left_bytes: u64,
}

pub fn run(card: &GpuUuid) -> Result<Scrubbed, ProbeError> {
    let card = Card::open(card)?;
    card.enter()?;
    let pieces = take_all(&card)?;
    let (free, total) = cuda::memory_info()?;
    let mut done = Scrubbed { left_bytes: free, ..Scrubbed::default() };
    for (address, bytes) in &pieces {
        let (sampled, dirty) = look(*address, *bytes)?;
        done.sampled_bytes += sampled;
        done.dirty_bytes += dirty;
    }
    let stream = Stream::new()?;
    done.nanos = stream
        .timed(|| pieces.iter().try_for_each(|(address, bytes)| cuda::clear(&stream, *address, *bytes)))?;
    for (address, bytes) in &pieces {
        done.unclean_bytes += look(*address, *bytes)?.1;
        done.bytes += bytes;
    }
    done.left_bytes += total.saturating_sub(free + done.bytes);
    Ok(done)
}

/// All the memory that the card gives, in pieces as large as it has them.
fn take_all(card: &Card) -> Result<Vec<(Address, u64)>, ProbeError> {
    let mut pieces = Vec::new();
    let mut size = PIECE_MAX;
    while size >= PIECE_MIN {
        match card.create(size) {
            Ok(memory) => pieces.push((card.map(&memory)?, size)),
            Err(error) if error.out_of_memory() => size /= 2,
            Err(error) => return Err(error),
        }
    }
    Ok(pieces)
}

/// Bytes looked at, and those of them that are not zero.
fn look(address: Address, bytes: u64) -> Result<(u64, u64), ProbeError> {
    let (mut sampled, mut dirty) = (0, 0);
    for start in (0..bytes).step_by(usize::try_from(STRETCH).unwrap_or(usize::MAX)) {
        let end = (start + STRETCH).min(bytes);
        for at in [start, end - WINDOW] {
            let window = cuda::download(address + at, WINDOW)?;
            sampled += WINDOW;
            dirty += window.iter().filter(|byte| **byte != 0).count() as u64;
        }
    }
    Ok((sampled, dirty))
}
