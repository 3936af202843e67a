//! Moving a stitched block under its address, part by part, at a moment that the program chooses.
//!
//! The block is taken out of the books for as long, the context's work is awaited, and for each part that lies on the wrong card: new memory,
//! a copy, then the part's addresses are unmapped and mapped anew. That needs room for one part at a time, and a part moves whole. What
//! cannot be moved stays: when room runs out, what has been moved so far stays moved. Nobody else may use the block meanwhile, which
//! is the caller's promise; blocks that another process or a graph may know of are refused.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::abi::{
    Code, DevicePtr, INVALID_CONTEXT, INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY, SUCCESS, UNKNOWN,
};
use crate::blocks::{Found, Holding, Piece, Sharing, Spilled};
use crate::hints::Hint;
use crate::placement::{Place, plan};
use crate::pool::Pool;
use crate::stitch::{self, Patch};
use crate::{capture, log, real};

/// Moves the block that starts at `at`. The bytes that changed cards.
pub(crate) fn migrate(pool: &Pool, at: DevicePtr, hint: Hint) -> Result<u64, Code> {
    let block = pool.blocks().containing(at).filter(|block| block.start == at);
    let Some(block) = block else {
        return Err(if pool.blocks().is_native(at) { NOT_SUPPORTED } else { INVALID_VALUE });
    };
    let hint = if hint == Hint::Default { block.hint() } else { hint };
    if !matches!(hint, Hint::Hot | Hint::Cold) || !movable(&block) {
        return Err(NOT_SUPPORTED);
    }
    if real::current_context().is_null() {
        return Err(INVALID_CONTEXT);
    }
    // SAFETY: no arguments.
    let code = unsafe { real::ctx_synchronize() };
    if code != SUCCESS {
        return Err(code);
    }
    // From here on the books' is the only one.
    drop(block);
    let taken = pool.blocks().take(at);
    let Found::Spilled(block) = taken else { return Err(INVALID_VALUE) };
    let (block, outcome) = moved(pool, block, hint);
    pool.blocks().add_spilled(block);
    outcome
}

pub(crate) fn movable(block: &Spilled) -> bool {
    let own = matches!(&block.sharing, Sharing::Own(number) if number.load(Ordering::Acquire) == 0);
    own && !capture::any() && !capture::pinned(block.id)
}

/// The block after the move, and the bytes moved; the refusal, if there were none.
fn moved(pool: &Pool, block: Arc<Spilled>, hint: Hint) -> (Arc<Spilled>, Result<u64, Code>) {
    // Nobody else has it: it is out of the books. A thread that looked it up a moment ago is breaking the promise.
    let mut block = match Arc::try_unwrap(block) {
        Ok(block) => block,
        Err(shared) => return (shared, Err(NOT_SUPPORTED)),
    };
    let (mut pieces, mut bytes, mut refused) = (Vec::new(), 0, None);
    for piece in std::mem::take(&mut block.pieces) {
        let wrong = match piece.holding {
            Holding::Local => hint == Hint::Cold,
            Holding::Lease { .. } => hint == Hint::Hot,
            Holding::Foreign => false,
        };
        if !wrong || refused.is_some_and(|code| code != OUT_OF_MEMORY) {
            pieces.push(piece);
            continue;
        }
        match replace(pool, block.start, piece, hint) {
            Ok(fresh) => {
                bytes +=
                    fresh.iter().filter(|piece| is_right(piece, hint)).map(|piece| piece.bytes).sum::<u64>();
                pieces.extend(fresh);
            }
            Err((old, code)) => {
                pieces.extend(old);
                refused = Some(code);
            }
        }
    }
    block.pieces = pieces;
    let outcome = match refused {
        Some(code) if bytes == 0 || code != OUT_OF_MEMORY => Err(code),
        _ => Ok(bytes),
    };
    (Arc::new(block), outcome)
}

fn is_right(piece: &Piece, hint: Hint) -> bool {
    (piece.holding == Holding::Local) == (hint == Hint::Hot)
}

/// New memory in the place of one piece, which is then let go. The error gives the piece back, if its bytes are still there.
fn replace(
    pool: &Pool,
    start: DevicePtr,
    old: Piece,
    hint: Hint,
) -> Result<Vec<Piece>, (Option<Piece>, Code)> {
    let hot = hint == Hint::Hot;
    let cards = pool.cards();
    let segments = plan(old.bytes, old.bytes, &cards, pool.rules.hinted(hint)).unwrap_or_default();
    let helps = segments.iter().any(|part| (part.place == Place::Local) == hot);
    if !helps {
        return Err((Some(old), OUT_OF_MEMORY));
    }
    let patch = match Patch::build(pool, old.bytes, &segments) {
        Ok(patch) => patch,
        Err(code) => return Err((Some(old), code)),
    };
    let at = start + old.offset;
    if let Err(code) = patch.copy_from(at) {
        return Err((Some(old), code));
    }
    match patch.take_place(start, &old) {
        Ok(fresh) => {
            stitch::let_go(pool, &old);
            Ok(fresh)
        }
        Err(lost) => {
            log::warn("cuda: a block lost a part while it was moved");
            if lost {
                stitch::let_go(pool, &old);
            }
            Err((if lost { None } else { Some(old) }, UNKNOWN))
        }
    }
}
