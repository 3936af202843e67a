//! The process that owns the probed memory, on `to`.

use std::os::fd::AsFd;

use tarn_protocol::ids::GpuUuid;

use super::cuda::{self, Card};
use super::pattern::{self, ATOMIC_PER_THREAD, ATOMIC_THREADS, FIRST_SEED, Parts, SECOND_SEED};
use super::words::{ProbeError, Verdict, Word, receive, send};

pub fn run(socket: impl AsFd, to: &GpuUuid, bytes: u64) -> Verdict {
    match serve(socket, to, Parts { bytes }) {
        Ok(()) => Verdict::Intact,
        Err(error) => error.verdict(),
    }
}

fn serve(socket: impl AsFd, to: &GpuUuid, parts: Parts) -> Result<(), ProbeError> {
    let card = Card::open(to)?;
    // As a broker does: memory and descriptor without a context. The context below only fills and checks.
    let memory = card.create(parts.bytes)?;
    let descriptor = memory.export()?;
    card.enter()?;
    let address = card.map(&memory)?;
    cuda::upload(address, &pattern::fill(FIRST_SEED, parts.pattern_words()))?;
    cuda::upload(address + parts.counter(), &[0; 8])?;
    cuda::synchronize()?;
    send(&socket, Word::Filled, Some(&descriptor))?;
    receive(&socket, Word::Used)?;
    let half = 4 * parts.half_words();
    let first = cuda::download(address, half)?;
    pattern::check("copied into the peer, seen by its own card", SECOND_SEED, &first)?;
    let second = cuda::download(address + parts.second_half(), half)?;
    pattern::check("written by a kernel, seen by the peer's own card", SECOND_SEED, &second)?;
    let counter = cuda::download(address + parts.counter(), 4)?;
    let counter = counter.try_into().map_or(0, u32::from_ne_bytes);
    // Atomics that lose updates are a lower grade, not a broken link; a counter that never moved is.
    let most = u32::try_from(ATOMIC_THREADS * ATOMIC_PER_THREAD).unwrap_or(u32::MAX);
    if counter == 0 || counter > most {
        let what = "atomic counter, seen by the peer's own card";
        return Err(ProbeError::Mismatch { what, index: 0, found: counter, expected: most });
    }
    Ok(())
}
