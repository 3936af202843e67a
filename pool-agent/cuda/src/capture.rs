//! Stream captures and graphs of this process: when nothing may be mapped, and which blocks must stay where they are.
//!
//! A capture forbids potentially unsafe calls to some threads: one begun in global mode to all whose own mode is global, any but a
//! relaxed one to its own thread; a thread that has exchanged its mode for "relaxed" may do anything. The driver keeps these rules for
//! its own allocation calls; a stitched allocation is made of calls that it does not check, so the rules are kept here: what would have
//! to be mapped is a clean "out of memory". Outside captures this costs one load.
//!
//! A graph may have resolved where its memory lies, and no call tells when it is gone for good. So every block that existed when
//! a capture began or ended or a graph was instantiated is pinned: migration leaves it alone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

use crate::abi::{CAPTURE_GLOBAL, CAPTURE_RELAXED, SUCCESS};
use crate::real;

/// By stream, as a number: the mode, and the thread that began.
static CAPTURES: Mutex<Option<HashMap<usize, (i32, ThreadId)>>> = Mutex::new(None);
static ACTIVE: AtomicUsize = AtomicUsize::new(0);
/// Blocks with smaller ids are pinned.
static PINNED_BELOW: AtomicU64 = AtomicU64::new(0);

fn captures<T>(look: impl FnOnce(&mut HashMap<usize, (i32, ThreadId)>) -> T) -> T {
    let mut captures = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner);
    let captures = captures.get_or_insert_default();
    let found = look(captures);
    ACTIVE.store(captures.len(), Ordering::Release);
    found
}

pub(crate) fn begun(stream: usize, mode: i32) {
    captures(|captures| captures.insert(stream, (mode, std::thread::current().id())));
}

pub(crate) fn ended(stream: usize) {
    captures(|captures| captures.remove(&stream));
}

pub(crate) fn any() -> bool {
    ACTIVE.load(Ordering::Acquire) > 0
}

/// Whether the calling thread may not map memory now.
pub(crate) fn forbids_mapping() -> bool {
    if !any() {
        return false;
    }
    let own_mode = own_mode();
    let own = std::thread::current().id();
    let forbids = |&(mode, thread): &(i32, ThreadId)| {
        mode != CAPTURE_RELAXED && (thread == own || (mode == CAPTURE_GLOBAL && own_mode == CAPTURE_GLOBAL))
    };
    own_mode != CAPTURE_RELAXED && captures(|captures| captures.values().any(forbids))
}

/// The calling thread's mode: only an exchange tells it.
fn own_mode() -> i32 {
    let mut mode = CAPTURE_RELAXED;
    // SAFETY: the pointer outlives the calls; the second gives back what the first took.
    unsafe {
        if real::exchange_capture_mode(&raw mut mode) != SUCCESS {
            return CAPTURE_GLOBAL;
        }
        let mut again = mode;
        real::exchange_capture_mode(&raw mut again);
    }
    mode
}

/// Whether a graph may know of the block.
pub(crate) fn pinned(block: u64) -> bool {
    block < PINNED_BELOW.load(Ordering::Acquire)
}

/// Pins every block whose id is below `next`.
pub(crate) fn pin(next: u64) {
    PINNED_BELOW.fetch_max(next, Ordering::AcqRel);
}
