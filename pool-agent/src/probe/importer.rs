//! The process that uses the probed memory: it sees only `from`, as a tenant's process does.

use std::os::fd::AsFd;

use tarn_protocol::ids::GpuUuid;
use tarn_protocol::probe::{ATOMICS, PTX, READ, WRITE};

use super::cuda::{self, Address, Card, Kernel};
use super::pattern::{self, ATOMIC_PER_THREAD, ATOMIC_THREADS, FIRST_SEED, Parts, SECOND_SEED};
use super::words::{Measured, ProbeError, Verdict, Word, receive, send};

const THREADS: u32 = 256;
const BLOCKS: u32 = 1024;

pub fn run(socket: impl AsFd, from: &GpuUuid, bytes: u64) -> Verdict {
    match probe(socket, from, Parts { bytes }) {
        Ok(measured) => Verdict::Measured(measured),
        Err(error) => error.verdict(),
    }
}

struct Kernels {
    write: Kernel,
    read: Kernel,
    atomics: Kernel,
}

fn probe(socket: impl AsFd, from: &GpuUuid, parts: Parts) -> Result<Measured, ProbeError> {
    let card = Card::open(from)?;
    card.enter()?;
    let kernels = kernels()?;
    let scratch = card.allocate(2 << 20)?;
    let descriptor = receive(&socket, Word::Filled)?.ok_or(ProbeError::PeerGone)?;
    let memory = card.import(&descriptor, parts.bytes)?;
    let peer = card.map(&memory)?;

    let copied = cuda::download(peer, 4 * parts.pattern_words())?;
    pattern::check("copied out of the peer", FIRST_SEED, &copied)?;
    let read_nanos = read(&kernels, peer, parts.pattern_words(), FIRST_SEED, scratch)?;
    let latency_nanos = latency(&kernels, peer, scratch)?;

    cuda::upload(peer, &pattern::fill(SECOND_SEED, parts.half_words()))?;
    let second = peer + parts.second_half();
    let write_nanos =
        cuda::timed(|| kernels.write.launch(BLOCKS, THREADS, &[second, parts.half_words(), SECOND_SEED]))?;
    read(&kernels, second, parts.half_words(), SECOND_SEED, scratch)?;
    let atomics_native = atomics(&kernels, peer + parts.counter())?;
    cuda::synchronize()?;
    send(&socket, Word::Used, None)?;
    Ok(Measured {
        read_mb_per_second: rate(4 * parts.pattern_words(), read_nanos),
        write_mb_per_second: rate(4 * parts.half_words(), write_nanos),
        latency_nanos,
        atomics_native,
        bytes_tested: parts.bytes,
    })
}

fn kernels() -> Result<Kernels, ProbeError> {
    let mut loaded = Kernel::load(PTX, &[WRITE, READ, ATOMICS])?.into_iter();
    match (loaded.next(), loaded.next(), loaded.next()) {
        (Some(write), Some(read), Some(atomics)) => Ok(Kernels { write, read, atomics }),
        _ => Err(ProbeError::NoDriver),
    }
}

/// Reads and compares by kernel; returns the nanoseconds it took.
fn read(
    kernels: &Kernels,
    from: Address,
    words: u64,
    seed: u64,
    counter: Address,
) -> Result<u64, ProbeError> {
    cuda::upload(counter, &[0; 8])?;
    let nanos = cuda::timed(|| kernels.read.launch(BLOCKS, THREADS, &[from, words, seed, counter]))?;
    let count = cuda::download(counter, 8)?.try_into().map_or(u64::MAX, u64::from_ne_bytes);
    if count == 0 { Ok(nanos) } else { Err(ProbeError::Differ { what: "read by a kernel", count }) }
}

/// A launch that reads one word of the peer, less the same launch on own memory.
fn latency(kernels: &Kernels, peer: Address, scratch: Address) -> Result<u64, ProbeError> {
    let own = scratch + (1 << 20);
    cuda::upload(own, &pattern::fill(FIRST_SEED, 1))?;
    let local = read(kernels, own, 1, FIRST_SEED, scratch)?;
    let remote = read(kernels, peer, 1, FIRST_SEED, scratch)?;
    Ok(remote.saturating_sub(local))
}

/// Whether additions of many threads to one word of the peer all arrive.
fn atomics(kernels: &Kernels, counter: Address) -> Result<bool, ProbeError> {
    let blocks = u32::try_from(ATOMIC_THREADS / u64::from(THREADS)).unwrap_or(1);
    kernels.atomics.launch(blocks, THREADS, &[counter, ATOMIC_PER_THREAD])?;
    cuda::synchronize()?;
    let sum = cuda::download(counter, 4)?.try_into().map_or(0, u32::from_ne_bytes);
    Ok(u64::from(sum) == ATOMIC_THREADS * ATOMIC_PER_THREAD)
}

/// Decimal megabytes per second.
fn rate(bytes: u64, nanos: u64) -> u64 {
    bytes.saturating_mul(1000) / nanos.max(1)
}
