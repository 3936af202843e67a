//! Moving bytes: which card executes, whose memory is touched, what the links between them do to it.

use tarn_sim::layout::{KERNELS_CRASH, KERNELS_HANG, LinkState};
use tarn_sim::machine::LinkClass;

use crate::address_space::Piece;
use crate::code::{Code, Outcome};
use crate::context::{Current, poison};
use crate::driver::Driver;
use crate::memory::Place;

/// Start-up of a copy or kernel, before the first byte.
const OVERHEAD_NS: u64 = 2_000;
/// Between two looks at whether a kernel that hangs may go on.
const HANG_STEP: std::time::Duration = std::time::Duration::from_millis(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Copy,
    KernelRead,
    KernelWrite,
}

/// What executing card and link do to one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Done,
    /// The call succeeds, the bytes stay as they were.
    Vanishes,
}

fn link_state(driver: &Driver, from: usize, to: usize) -> Result<(LinkState, bool), Code> {
    let state = driver.state()?;
    Ok((state.links[from][to], state.gpus[from].lost != 0 || state.gpus[to].lost != 0))
}

/// What a write from the current card to a place does; a broken card or link breaks the context.
pub(crate) fn write_effect(driver: &Driver, here: Current, place: Place) -> Result<Effect, Code> {
    reach(driver, here, place)?;
    let Place::Card(card) = place else { return Ok(Effect::Done) };
    let (link, _) = link_state(driver, here.card, card)?;
    let vanishes = card != here.card && (link.writes_vanish != 0 || driver.machine().iommu_translating);
    Ok(if vanishes { Effect::Vanishes } else { Effect::Done })
}

/// How many bytes of a piece, from its start, a write from the current card really changes.
pub(crate) fn written(driver: &Driver, here: Current, piece: &Piece) -> Result<u64, Code> {
    if write_effect(driver, here, piece.place)? == Effect::Vanishes {
        return Ok(0);
    }
    note_content(driver, piece, false)?;
    let Place::Card(card) = piece.place else { return Ok(piece.bytes) };
    if card == here.card || link_state(driver, here.card, card)?.0.upper_half_vanishes == 0 {
        return Ok(piece.bytes);
    }
    let space = driver.space();
    let middle = space.mapping(piece.address).map(|(start, mapping)| start + mapping.bytes / 2);
    Ok(middle.map_or(piece.bytes, |middle| middle.saturating_sub(piece.address).min(piece.bytes)))
}

/// What the link does to a kernel that is about to touch a place across it.
pub(crate) fn run_across(driver: &Driver, here: Current, place: Place) -> Outcome {
    let Place::Card(card) = place else { return Ok(()) };
    if card == here.card {
        return Ok(());
    }
    loop {
        match link_state(driver, here.card, card)?.0.kernels {
            KERNELS_HANG => std::thread::sleep(HANG_STEP),
            KERNELS_CRASH => std::process::abort(),
            _ => return Ok(()),
        }
    }
}

/// Whether kernel writes to a place are lost while the link is busy.
pub(crate) fn lost_under_load(driver: &Driver, here: Current, place: Place) -> Result<bool, Code> {
    let Place::Card(card) = place else { return Ok(false) };
    Ok(card != here.card && link_state(driver, here.card, card)?.0.vanish_under_load != 0)
}

/// Fails when the current card cannot reach a place any more.
pub(crate) fn reach(driver: &Driver, here: Current, place: Place) -> Outcome {
    let card = match place {
        Place::Host => here.card,
        Place::Card(card) => card,
    };
    let (link, lost) = link_state(driver, here.card, card)?;
    if lost {
        return Err(poison(driver, here.id, Code::LAUNCH_FAILED));
    }
    if link.lost != 0 && card != here.card {
        let nvlink = driver.machine().link(here.card, card).class == LinkClass::Nvlink;
        let code = if nvlink { Code::NVLINK_UNCORRECTABLE } else { Code::LAUNCH_FAILED };
        return Err(poison(driver, here.id, code));
    }
    Ok(())
}

/// Whether read-modify-write on a place is atomic for the current card.
pub(crate) fn atomic(driver: &Driver, here: Current, place: Place) -> Result<bool, Code> {
    let Place::Card(card) = place else { return Ok(true) };
    let (link, _) = link_state(driver, here.card, card)?;
    Ok(driver.machine().link(here.card, card).atomics && link.atomics_missing == 0)
}

/// Simulated time for one piece: bytes over the link's bandwidth, plus its latency.
pub(crate) fn piece_time(driver: &Driver, here: Current, piece: &Piece, engine: Engine) -> Result<u64, Code> {
    let (bandwidth, latency_ns) = match piece.place {
        Place::Host => (driver.machine().host_link_mbps, 1_000),
        Place::Card(card) => {
            let link = driver.machine().link(here.card, card);
            let full = match engine {
                Engine::Copy => link.copy_mbps,
                Engine::KernelRead => link.kernel_read_mbps,
                Engine::KernelWrite => link.kernel_write_mbps,
            };
            let left = 100 - u64::from(link_state(driver, here.card, card)?.0.degraded_percent.min(99));
            (full * left / 100, link.latency_ns)
        }
    };
    Ok(latency_ns + piece.bytes.saturating_mul(1000) / bandwidth.max(1))
}

/// Sums up: pieces of one side run one after the other, the slower side decides.
fn time(driver: &Driver, here: Current, sides: [&[Piece]; 2]) -> Result<u64, Code> {
    let mut slowest = 0;
    for side in sides {
        let mut sum = 0;
        for piece in side {
            sum += piece_time(driver, here, piece, Engine::Copy)?;
        }
        slowest = slowest.max(sum);
    }
    Ok(OVERHEAD_NS + slowest)
}

/// Copies and answers the simulated nanoseconds.
pub(crate) fn copy(driver: &Driver, here: Current, to: u64, from: u64, bytes: u64) -> Result<u64, Code> {
    let (targets, sources) = {
        let space = driver.space();
        (space.pieces(to, bytes, here.card)?, space.pieces(from, bytes, here.card)?)
    };
    for source in &sources {
        reach(driver, here, source.place)?;
    }
    for target in &targets {
        let source = from + (target.address - to);
        let length = usize::try_from(written(driver, here, target)?).map_err(|_| Code::INVALID_VALUE)?;
        // SAFETY: both ranges are memory of this process: what the driver mapped, or what the caller vouches for.
        unsafe { std::ptr::copy(source as *const u8, target.address as *mut u8, length) };
    }
    time(driver, here, [&targets, &sources])
}

/// Fills with a pattern of 1, 2 or 4 bytes and answers the simulated nanoseconds.
pub(crate) fn fill(driver: &Driver, here: Current, to: u64, pattern: &[u8], bytes: u64) -> Result<u64, Code> {
    let targets = driver.space().pieces(to, bytes, here.card)?;
    let zero = pattern.iter().all(|byte| *byte == 0);
    for target in &targets {
        if write_effect(driver, here, target.place)? == Effect::Done {
            fill_piece(target, to, pattern);
            note_content(driver, target, zero)?;
        }
    }
    time(driver, here, [&targets, &[]])
}

/// Remembers whether the memory under a piece is all zero: a whole mapping was cleared, or something was written.
fn note_content(driver: &Driver, piece: &Piece, cleared: bool) -> Outcome {
    let Place::Card(card) = piece.place else { return Ok(()) };
    if driver.state()?.gpus[card].keeps_freed == 0 {
        return Ok(());
    }
    let memory = driver.space().mapping(piece.address).map(|(start, mapping)| {
        let whole = start == piece.address && mapping.bytes == piece.bytes;
        (std::sync::Arc::clone(&mapping.memory), whole)
    });
    memory.map_or(Ok(()), |(memory, whole)| memory.mark_clean(driver, cleared && whole))
}

fn fill_piece(target: &Piece, origin: u64, pattern: &[u8]) {
    let mut ranges = vec![(target.address, target.address + target.bytes)];
    let zero = pattern.iter().all(|byte| *byte == 0);
    // Zeroed pages are given back, so that clearing a card costs no host memory.
    if zero
        && target.place != Place::Host
        && let Some((start, end)) = crate::native_arena::zero_pages(target.address, target.bytes)
    {
        ranges = vec![(target.address, start), (end, target.address + target.bytes)];
    }
    for (start, end) in ranges {
        let length = usize::try_from(end - start).unwrap_or(0);
        // SAFETY: the piece is memory of this process that the driver mapped or the caller vouches for.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, length) };
        if let [byte] = pattern {
            bytes.fill(*byte);
            continue;
        }
        let phase = usize::try_from(start - origin).unwrap_or(0);
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = pattern[(phase + at) % pattern.len()];
        }
    }
}
