//! The kernels this driver can run, known by name: those with which links are probed. Their PTX lies with the protocol;
//! what it computes on a card, this file computes here.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tarn_protocol::probe::{ATOMICS, READ, WRITE, mix};

use crate::address_space::Piece;
use crate::code::Code;
use crate::context::Current;
use crate::driver::Driver;
use crate::transfer::{Effect, Engine, atomic, piece_time, reach, write_effect};

const LAUNCH_NS: u64 = 3_000;
/// Atomic additions that a card's memory takes from one kernel, per microsecond.
const ATOMICS_PER_MICROSECOND: u64 = 2_000;

#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) name: &'a str,
    /// Threads of the whole grid.
    pub(crate) threads: u64,
    pub(crate) values: [u64; 4],
}

pub(crate) fn parameter_count(name: &str) -> Option<usize> {
    match name {
        WRITE => Some(3),
        READ => Some(4),
        ATOMICS => Some(2),
        _ => None,
    }
}

/// Runs a launch and answers its simulated nanoseconds.
pub(crate) fn run(driver: &Driver, here: Current, launch: &Launch<'_>) -> Result<u64, Code> {
    let [first, second, third, fourth] = launch.values;
    match launch.name {
        WRITE => probe_write(driver, here, first, second, third),
        READ => probe_read(driver, here, [first, second, third, fourth]),
        ATOMICS => probe_atomics(driver, here, first, second.wrapping_mul(launch.threads)),
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
    space.pieces(address, bytes, here.card).map_err(|_| Code::ILLEGAL_ADDRESS)
}

fn probe_write(driver: &Driver, here: Current, to: u64, count: u64, seed: u64) -> Result<u64, Code> {
    let mut nanoseconds = LAUNCH_NS;
    for piece in words(driver, here, to, count)? {
        nanoseconds += piece_time(driver, here, &piece, Engine::KernelWrite)?;
        if write_effect(driver, here, piece.place)? == Effect::Vanishes {
            continue;
        }
        let (first, length) = ((piece.address - to) / 4, usize::try_from(piece.bytes / 4).unwrap_or(0));
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

/// Adds one per addition; where the link has no atomics, two additions that meet leave one.
fn probe_atomics(driver: &Driver, here: Current, target: u64, additions: u64) -> Result<u64, Code> {
    let pieces = words(driver, here, target, 1)?;
    let piece = pieces.first().ok_or(Code::ILLEGAL_ADDRESS)?;
    let nanoseconds = LAUNCH_NS
        + piece_time(driver, here, piece, Engine::KernelWrite)?
        + additions.saturating_mul(1000) / ATOMICS_PER_MICROSECOND;
    if write_effect(driver, here, piece.place)? == Effect::Vanishes {
        return Ok(nanoseconds);
    }
    let kept = if atomic(driver, here, piece.place)? { additions } else { additions.div_ceil(2) };
    // SAFETY: four mapped bytes, aligned; other processes may add to them at the same time.
    unsafe { AtomicU32::from_ptr(target as *mut u32) }
        .fetch_add((kept & 0xffff_ffff) as u32, Ordering::SeqCst);
    Ok(nanoseconds)
}
