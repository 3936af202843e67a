//! What the importer measures, and checks while it measures: by kernel and by copy engine, alone and with the link busy.

use tarn_protocol::probe::{CHASE, PTX, READ, STREAM_IN, STREAM_OUT, WRITE};

use super::cuda::{self, Address, Card};
use super::pattern::{FIRST_SEED, Parts, SECOND_SEED};
use super::stream::{Grid, Kernel, Stream, load};
use super::words::ProbeError;

const GRID: Grid = Grid { blocks: 1024, threads: 256 };
const ONE_THREAD: Grid = Grid { blocks: 1, threads: 1 };
const CHASE_STEPS: u64 = 4096;
/// What one timing moves: enough that starting a kernel does not count, little enough for a quick look at a small chunk.
const VOLUME_MAX: u64 = 1 << 30;
const VOLUME_PASSES: u64 = 16;
/// The load lasts longer than what is measured under it.
const LOAD_FACTOR: u64 = 4;

/// The importer's card with everything that it needs to look at one chunk of the peer's.
#[derive(Debug)]
pub struct Bench {
    parts: Parts,
    stream: Stream,
    load: Stream,
    kernels: Kernels,
    /// As large as the pattern.
    local: Address,
    /// A counter and a sink.
    scratch: Address,
}

#[derive(Debug)]
struct Kernels {
    write: Kernel,
    read: Kernel,
    stream_in: Kernel,
    stream_out: Kernel,
    chase: Kernel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    pub loaded_read_mb_per_second: u64,
    pub loaded_write_mb_per_second: u64,
}

impl Bench {
    pub fn new(card: &Card, parts: Parts) -> Result<Self, ProbeError> {
        let [write, read, stream_in, stream_out, chase] =
            load(PTX, [WRITE, READ, STREAM_IN, STREAM_OUT, CHASE])?;
        Ok(Self {
            parts,
            stream: Stream::new()?,
            load: Stream::new()?,
            kernels: Kernels { write, read, stream_in, stream_out, chase },
            local: card.allocate(parts.bytes)?,
            scratch: card.allocate(2 << 20)?,
        })
    }

    /// Bytes that one timing moves.
    fn volume(&self) -> u64 {
        VOLUME_MAX.min(VOLUME_PASSES * self.parts.bytes).max(self.parts.half())
    }

    /// Compares memory with the pattern, by kernel.
    pub fn verify(&self, what: &'static str, from: Address, bytes: u64, seed: u64) -> Result<(), ProbeError> {
        cuda::upload(self.scratch, &[0; 8])?;
        let parameters = [from, bytes / 4, seed, self.scratch];
        self.stream.timed(|| self.stream.launch(self.kernels.read, GRID, &parameters))?;
        let count = cuda::download(self.scratch, 8)?.try_into().map_or(u64::MAX, u64::from_ne_bytes);
        if count == 0 { Ok(()) } else { Err(ProbeError::Differ { what, count }) }
    }

    /// The whole pattern into local memory by copy engine, and a look at what arrived.
    pub fn copy_out(&self, peer: Address) -> Result<u64, ProbeError> {
        let bytes = self.parts.pattern();
        let rate = self.copies(self.local, peer, bytes)?;
        self.verify("copied out of the peer by copy engine", self.local, bytes, FIRST_SEED)?;
        Ok(rate)
    }

    /// The second pattern into the peer's first half by copy engine.
    pub fn copy_in(&self, peer: Address) -> Result<u64, ProbeError> {
        let half = self.parts.half();
        let parameters = [self.local, half / 4, SECOND_SEED];
        self.stream.timed(|| self.stream.launch(self.kernels.write, GRID, &parameters))?;
        let rate = self.copies(peer, self.local, half)?;
        self.verify("copied into the peer by copy engine", peer, half, SECOND_SEED)?;
        Ok(rate)
    }

    fn copies(&self, to: Address, from: Address, bytes: u64) -> Result<u64, ProbeError> {
        let passes = (self.volume() / bytes).max(1);
        let copy = || (0..passes).try_for_each(|_| cuda::copy(&self.stream, to, from, bytes));
        Ok(rate(passes * bytes, self.stream.timed(copy)?))
    }

    /// One round trip, in nanoseconds.
    pub fn latency(&self, peer: Address) -> Result<u64, ProbeError> {
        let first = peer + self.parts.chain();
        cuda::upload(first, &self.parts.chain_links(peer))?;
        let parameters = [first, CHASE_STEPS, self.scratch + 8];
        let nanos = self.stream.timed(|| self.stream.launch(self.kernels.chase, ONE_THREAD, &parameters))?;
        Ok(nanos / CHASE_STEPS)
    }

    /// Reads one half again and again; megabytes per second.
    pub fn stream_in(&self, half: Address) -> Result<u64, ProbeError> {
        self.streamed(self.kernels.stream_in, half, self.scratch + 16)
    }

    pub fn stream_out(&self, half: Address) -> Result<u64, ProbeError> {
        self.streamed(self.kernels.stream_out, half, SECOND_SEED)
    }

    fn streamed(&self, kernel: Kernel, half: Address, last: u64) -> Result<u64, ProbeError> {
        let bytes = self.parts.half();
        let passes = (self.volume() / bytes).max(1);
        let launch = |passes| self.stream.launch(kernel, GRID, &[half, bytes / 16, passes, last]);
        // Once without a clock: the first touch sets up translations.
        launch(1)?;
        Ok(rate(passes * bytes, self.stream.timed(|| launch(passes))?))
    }

    /// Reads while copies go into the peer, writes while copies come out of it, and checks both of what the link did meanwhile.
    pub fn loaded(&self, peer: Address) -> Result<Loaded, ProbeError> {
        let (half, second) = (self.parts.half(), peer + self.parts.half());
        let copies = (LOAD_FACTOR * self.volume() / half).max(LOAD_FACTOR);
        let keep_busy = |to, from| (0..copies).try_for_each(|_| cuda::copy(&self.load, to, from, half));

        keep_busy(peer, self.local)?;
        let loaded_read_mb_per_second = self.stream_in(second)?;
        cuda::synchronize()?;

        let back = self.local + half;
        keep_busy(back, peer)?;
        let loaded_write_mb_per_second = self.stream_out(second)?;
        self.stream.launch(self.kernels.write, GRID, &[second, half / 4, SECOND_SEED])?;
        cuda::synchronize()?;
        self.verify("written by a kernel while the link was busy", second, half, SECOND_SEED)?;
        self.verify("copied out of the peer while the link was busy", back, half, SECOND_SEED)?;
        Ok(Loaded { loaded_read_mb_per_second, loaded_write_mb_per_second })
    }
}

/// Decimal megabytes per second.
fn rate(bytes: u64, nanos: u64) -> u64 {
    bytes.saturating_mul(1000) / nanos.max(1)
}
