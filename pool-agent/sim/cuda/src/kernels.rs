//! The kernels this driver can run, known by name: those with which links are probed. Their PTX lies with the protocol;
//! what it computes on a card, this file computes here.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tarn_protocol::probe::{
    ATOMICS, CHASE, FLOATS, READ, REDUCTIONS, STREAM_IN, STREAM_OUT, SWAPS, WRITE, mix,
};

use crate::address_space::Piece;
use crate::code::Code;
use crate::context::Current;
use crate::driver::Driver;
use crate::memory::Place;
use crate::transfer::{
    Effect, Engine, atomic, lost_under_load, piece_time, reach, run_across, write_effect, written,
};

const LAUNCH_NS: u64 = 3_000;
/// Atomic additions that a card's memory takes from one kernel, per microsecond.
const ATOMICS_PER_MICROSECOND: u64 = 2_000;

#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) name: &'a str,
    /// Threads of the whole grid.
    pub(crate) threads: u64,
    pub(crate) values: [u64; 4],
    /// Another stream has work under way.
    pub(crate) loaded: bool,
}

pub(crate) fn parameter_count(name: &str) -> Option<usize> {
    match name {
        ATOMICS | FLOATS | REDUCTIONS => Some(2),
        WRITE | SWAPS | CHASE => Some(3),
        READ | STREAM_IN | STREAM_OUT => Some(4),
        _ => None,
    }
}

/// Runs a launch and answers its simulated nanoseconds.
pub(crate) fn run(driver: &Driver, here: Current, launch: &Launch<'_>) -> Result<u64, Code> {
    let [first, second, third, _] = launch.values;
    let additions = second.wrapping_mul(launch.threads);
    match launch.name {
        WRITE => probe_write(driver, here, launch),
        READ => probe_read(driver, here, launch.values),
        ATOMICS | SWAPS => add(driver, here, first, additions, |kept| {
            // SAFETY: `add` found four mapped bytes, aligned; other processes may add to them at the same time.
            unsafe { AtomicU32::from_ptr(first as *mut u32) }.fetch_add(low(kept), Ordering::SeqCst);
        }),
        FLOATS => add(driver, here, first, additions, |kept| add_float(first, kept)),
        REDUCTIONS => add(driver, here, first, additions, |kept| {
            // SAFETY: as above, with eight bytes: a probe's counters are cache lines apart.
            unsafe { AtomicU64::from_ptr(first as *mut u64) }.fetch_add(kept, Ordering::SeqCst);
        }),
        STREAM_IN => stream(driver, here, [first, second, third], Engine::KernelRead),
        STREAM_OUT => stream(driver, here, [first, second, third], Engine::KernelWrite),
        CHASE => chase(driver, here, first, second, third),
        _ => Err(Code::NOT_SUPPORTED),
    }
}

fn words(driver: &Driver, here: Current, address: u64, words: u64) -> Result<Vec<Piece>, Code> {
    let bytes = words.checked_mul(4).ok_or(Code::ILLEGAL_ADDRESS)?;
    let space = driver.space();
    if !address.is_multiple_of(4)
        || words == 0
        || !(space.on_card(address) || space.pinned(address).is_some())
    {
        return Err(Code::ILLEGAL_ADDRESS);
    }
    let pieces = space.pieces(address, bytes, here.card).map_err(|_| Code::ILLEGAL_ADDRESS)?;
    drop(space);
    for piece in &pieces {
        run_across(driver, here, piece.place)?;
    }
    Ok(pieces)
}

const fn low(value: u64) -> u32 {
    (value & 0xffff_ffff) as u32
}

fn probe_write(driver: &Driver, here: Current, launch: &Launch<'_>) -> Result<u64, Code> {
    let [to, count, seed, _] = launch.values;
    let mut nanoseconds = LAUNCH_NS;
    for piece in words(driver, here, to, count)? {
        nanoseconds += piece_time(driver, here, &piece, Engine::KernelWrite)?;
        let changed = written(driver, here, &piece)?;
        if launch.loaded && lost_under_load(driver, here, piece.place)? {
            continue;
        }
        let (first, length) = ((piece.address - to) / 4, usize::try_from(changed / 4).unwrap_or(0));
        // SAFETY: `words` found the piece to be mapped memory of this process, aligned to four bytes.
        let slice = unsafe { std::slice::from_raw_parts_mut(piece.address as *mut u32, length) };
        for (word, index) in slice.iter_mut().zip(first..) {
            *word = mix(seed, index);
        }
    }
    Ok(nanoseconds)
}

fn probe_read(driver: &Driver, here: Current, [from, count, seed, counter]: [u64; 4]) -> Result<u64, Code> {
    let mut nanoseconds = LAUNCH_NS;
    let mut mismatches = 0;
    for piece in words(driver, here, from, count)? {
        reach(driver, here, piece.place)?;
        nanoseconds += piece_time(driver, here, &piece, Engine::KernelRead)?;
        let (first, length) = ((piece.address - from) / 4, usize::try_from(piece.bytes / 4).unwrap_or(0));
        // SAFETY: `words` found the piece to be mapped memory of this process, aligned to four bytes.
        let slice = unsafe { std::slice::from_raw_parts(piece.address as *const u32, length) };
        mismatches +=
            slice.iter().zip(first..).filter(|(word, index)| **word != mix(seed, *index)).count() as u64;
    }
    if !counter.is_multiple_of(8) {
        return Err(Code::ILLEGAL_ADDRESS);
    }
    for piece in words(driver, here, counter, 2)? {
        if write_effect(driver, here, piece.place)? == Effect::Vanishes {
            return Ok(nanoseconds);
        }
    }
    // SAFETY: eight mapped bytes, aligned; other processes may add to them at the same time.
    unsafe { AtomicU64::from_ptr(counter as *mut u64) }.fetch_add(mismatches, Ordering::SeqCst);
    Ok(nanoseconds)
}

/// One per addition; where the link has no atomics, two additions that meet leave one.
fn add(
    driver: &Driver,
    here: Current,
    target: u64,
    additions: u64,
    apply: impl FnOnce(u64),
) -> Result<u64, Code> {
    let pieces = words(driver, here, target, 2)?;
    let piece = pieces.first().ok_or(Code::ILLEGAL_ADDRESS)?;
    if !target.is_multiple_of(8) {
        return Err(Code::ILLEGAL_ADDRESS);
    }
    let nanoseconds = LAUNCH_NS
        + piece_time(driver, here, piece, Engine::KernelWrite)?
        + additions.saturating_mul(1000) / ATOMICS_PER_MICROSECOND;
    if write_effect(driver, here, piece.place)? != Effect::Vanishes {
        apply(if atomic(driver, here, piece.place)? { additions } else { additions.div_ceil(2) });
    }
    Ok(nanoseconds)
}

#[allow(clippy::float_arithmetic, clippy::cast_precision_loss)] // what the kernel does, with sums that a float holds exactly
fn add_float(target: u64, kept: u64) {
    // SAFETY: `add` found four mapped bytes, aligned.
    let word = unsafe { AtomicU32::from_ptr(target as *mut u32) };
    let sum = |bits: u32| Some((f32::from_bits(bits) + kept as f32).to_bits());
    // The closure never declines, so this ends with the sum stored.
    let _stored = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, sum);
}

/// Only its time matters: the bytes stay as they are.
fn stream(
    driver: &Driver,
    here: Current,
    [address, quads, passes]: [u64; 3],
    engine: Engine,
) -> Result<u64, Code> {
    let mut nanoseconds = LAUNCH_NS;
    for piece in words(driver, here, address, quads.saturating_mul(4))? {
        reach(driver, here, piece.place)?;
        // Passes run into one another, so the latency of the first hides the others'.
        let all = Piece { bytes: piece.bytes.saturating_mul(passes), ..piece };
        nanoseconds += piece_time(driver, here, &all, engine)?;
    }
    Ok(nanoseconds)
}

/// Follows addresses; every step is one round trip over the link to the place that it reads.
fn chase(driver: &Driver, here: Current, first: u64, steps: u64, sink: u64) -> Result<u64, Code> {
    let (mut at, mut nanoseconds) = (first, LAUNCH_NS);
    for _ in 0..steps {
        let pieces = words(driver, here, at, 2)?;
        let place = pieces.first().filter(|_| at.is_multiple_of(8)).ok_or(Code::ILLEGAL_ADDRESS)?.place;
        reach(driver, here, place)?;
        nanoseconds += match place {
            Place::Host => 1_000,
            Place::Card(card) => driver.machine().link(here.card, card).latency_ns,
        };
        // SAFETY: eight mapped bytes, aligned.
        at = unsafe { (at as *const u64).read_volatile() };
    }
    let pieces = words(driver, here, sink, 2)?;
    let reached = pieces.first().map(|piece| written(driver, here, piece)).transpose()?;
    if sink.is_multiple_of(8) && reached.is_some_and(|bytes| bytes >= 8) {
        // SAFETY: eight mapped bytes, aligned.
        unsafe { (sink as *mut u64).write_volatile(at) };
    }
    Ok(nanoseconds)
}
