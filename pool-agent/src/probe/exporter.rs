//! The process that owns the probed memory, on `to`. What it sees from its own card decides: writes that vanished on the way are
//! found here and nowhere else.

use std::os::fd::AsFd;

use tarn_protocol::ids::GpuUuid;
use tarn_protocol::probe::{PTX, READ, WRITE};

use super::atomics::{self, KINDS};
use super::cuda::{self, Address, Card};
use super::pattern::{FIRST_SEED, Parts, SECOND_SEED};
use super::stream::{Grid, Kernel, Stream, load};
use super::words::{ProbeError, Verdict, Word, receive, send};

const GRID: Grid = Grid { blocks: 1024, threads: 256 };

pub fn run(socket: impl AsFd, to: &GpuUuid, bytes: u64) -> Verdict {
    match serve(socket, to, Parts { bytes }) {
        Ok(sums) => Verdict::Intact { sums },
        Err(error) => error.verdict(),
    }
}

fn serve(socket: impl AsFd, to: &GpuUuid, parts: Parts) -> Result<Vec<u64>, ProbeError> {
    let card = Card::open(to)?;
    // As a broker does: memory and descriptor without a context. The context below only fills and checks.
    let memory = card.create(parts.bytes)?;
    let descriptor = memory.export()?;
    card.enter()?;
    let chunk = card.map(&memory)?;
    let scratch = card.allocate(2 << 20)?;
    let [write, read] = load(PTX, [WRITE, READ])?;
    let stream = Stream::new()?;
    let fill = [chunk, parts.pattern() / 4, FIRST_SEED];
    stream.timed(|| stream.launch(write, GRID, &fill))?;
    for kind in 0..KINDS.len() {
        cuda::upload(chunk + parts.counter(kind as u64), &[0; 8])?;
    }
    cuda::synchronize()?;
    send(&socket, Word::Filled, Some(&descriptor))?;
    receive(&socket, Word::Adding)?;
    atomics::run(&stream, chunk, parts)?;
    send(&socket, Word::Added, None)?;
    receive(&socket, Word::Used)?;
    let look = |what, half: Address| verify((&stream, read), scratch, what, half, parts.half());
    look("copied into the peer, seen by its own card", chunk)?;
    look("written by a kernel, seen by the peer's own card", chunk + parts.half())?;
    atomics::sums(chunk, parts)
}

fn verify(
    (stream, read): (&Stream, Kernel),
    counter: Address,
    what: &'static str,
    half: Address,
    bytes: u64,
) -> Result<(), ProbeError> {
    cuda::upload(counter, &[0; 8])?;
    stream.timed(|| stream.launch(read, GRID, &[half, bytes / 4, SECOND_SEED, counter]))?;
    let count = cuda::download(counter, 8)?.try_into().map_or(u64::MAX, u64::from_ne_bytes);
    if count == 0 { Ok(()) } else { Err(ProbeError::Differ { what, count }) }
}
