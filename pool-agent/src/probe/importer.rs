//! The process that uses the probed memory: it sees only `from`, as a tenant's process does.

use std::os::fd::AsFd;

use tarn_protocol::ids::GpuUuid;

use super::atomics;
use super::cuda::{self, Address, Card};
use super::measure::{Bench, Loaded};
use super::pattern::{self, FIRST_SEED, Parts, SECOND_SEED, WINDOW};
use super::stream::Stream;
use super::words::{Measured, ProbeError, Verdict, Word, receive, send};

pub fn run(socket: impl AsFd, from: &GpuUuid, bytes: u64) -> Verdict {
    match probe(socket, from, Parts { bytes }) {
        Ok(measured) => Verdict::Measured(measured),
        Err(error) => error.verdict(),
    }
}

fn probe(socket: impl AsFd, from: &GpuUuid, parts: Parts) -> Result<Measured, ProbeError> {
    let card = Card::open(from)?;
    card.enter()?;
    let bench = Bench::new(&card, parts)?;
    let descriptor = receive(&socket, Word::Filled)?.ok_or(ProbeError::PeerGone)?;
    let memory = card.import(&descriptor, parts.bytes)?;
    let peer = card.map(&memory)?;

    windows(peer, parts)?;
    let copy_out_mb_per_second = bench.copy_out(peer)?;
    bench.verify("read by a kernel", peer, parts.pattern(), FIRST_SEED)?;
    let latency_nanos = bench.latency(peer)?;
    let read_mb_per_second = bench.stream_in(peer + parts.half())?;
    let write_mb_per_second = bench.stream_out(peer + parts.half())?;
    // From here on both halves get the second pattern, the first by copy engine, the second by kernel, each while the other works.
    let copy_in_mb_per_second = bench.copy_in(peer)?;
    let Loaded { loaded_read_mb_per_second, loaded_write_mb_per_second } = bench.loaded(peer)?;
    cuda::synchronize()?;
    let measured = Measured {
        read_mb_per_second,
        write_mb_per_second,
        copy_out_mb_per_second,
        copy_in_mb_per_second,
        loaded_read_mb_per_second,
        loaded_write_mb_per_second,
        latency_nanos,
        bytes_tested: parts.bytes,
        ..Measured::default()
    };
    // Last, because a link that cannot do them may break this process's context, which takes nothing back of what was shown.
    send(&socket, Word::Adding, None)?;
    let added = Stream::new().and_then(|stream| atomics::run(&stream, peer, parts));
    receive(&socket, Word::Added)?;
    send(&socket, Word::Used, None)?;
    Ok(match added {
        Ok(atomics_nanos) => Measured { atomics_nanos, ..measured },
        Err(error) => Measured { atomics_fault: Some(error.to_string()), ..measured },
    })
}

/// Host copies out of both ends of the peer's pattern, and into them.
fn windows(peer: Address, parts: Parts) -> Result<(), ProbeError> {
    let end = parts.pattern() - WINDOW;
    for offset in [0, end] {
        let what = "copied out of the peer to the host";
        pattern::check(what, FIRST_SEED, offset / 4, &cuda::download(peer + offset, WINDOW)?)?;
    }
    for offset in [0, end] {
        cuda::upload(peer + offset, &pattern::fill(SECOND_SEED, offset / 4, WINDOW / 4))?;
    }
    for offset in [0, end] {
        let what = "copied from the host into the peer and back";
        pattern::check(what, SECOND_SEED, offset / 4, &cuda::download(peer + offset, WINDOW)?)?;
        cuda::upload(peer + offset, &pattern::fill(FIRST_SEED, offset / 4, WINDOW / 4))?;
    }
    Ok(())
}
