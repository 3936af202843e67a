//! Stream capture, as far as memory is concerned: which streams capture, in which mode, and whom that forbids unsafe calls. Work on a
//! capturing stream is still done at once and the graph that comes out is empty.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

use crate::code::{Code, Outcome};
use crate::driver::driver;
use crate::entry::put;
use crate::native::fresh_id;
use crate::stream::clock;

const GLOBAL: i32 = 0;
const THREAD_LOCAL: i32 = 1;
const RELAXED: i32 = 2;

/// By stream: the mode, and the thread that began.
static CAPTURES: Mutex<Option<HashMap<usize, (i32, ThreadId)>>> = Mutex::new(None);

thread_local! {
    /// What `cuThreadExchangeStreamCaptureMode` has set.
    static MODE: Cell<i32> = const { Cell::new(GLOBAL) };
}

fn captures<T>(look: impl FnOnce(&mut HashMap<usize, (i32, ThreadId)>) -> T) -> T {
    look(CAPTURES.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

pub(crate) fn active(stream: usize) -> bool {
    captures(|captures| captures.contains_key(&stream))
}

/// Refuses a potentially unsafe call where a capture forbids it to the calling thread.
pub(crate) fn permit() -> Outcome {
    if MODE.get() == RELAXED {
        return Ok(());
    }
    let own = std::thread::current().id();
    let forbids = |(mode, thread): &(i32, ThreadId)| match *mode {
        GLOBAL => *thread == own || MODE.get() == GLOBAL,
        THREAD_LOCAL => *thread == own,
        _ => false,
    };
    let forbidden = captures(|captures| captures.values().any(forbids));
    if forbidden { Err(Code::STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

fn begin(stream: usize, mode: i32) -> Outcome {
    clock(driver()?, stream)?;
    if !matches!(mode, GLOBAL | THREAD_LOCAL | RELAXED) {
        return Err(Code::INVALID_VALUE);
    }
    if stream <= 2 {
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    let known = captures(|captures| captures.insert(stream, (mode, std::thread::current().id())));
    if known.is_some() { Err(Code::ILLEGAL_STATE) } else { Ok(()) }
}

driver_api! {
    ["cuStreamIsCapturing" 10000 / cuStreamIsCapturing_ptsz] fn cuStreamIsCapturing(stream: usize, status: *mut i32) {
        clock(driver()?, stream)?;
        put(status, i32::from(active(stream)))
    }
    ["cuStreamBeginCapture" 10000 / cuStreamBeginCapture_ptsz] fn cuStreamBeginCapture(stream: usize) {
        begin(stream, GLOBAL)
    }
    ["cuStreamBeginCapture" 10010 / cuStreamBeginCapture_v2_ptsz] fn cuStreamBeginCapture_v2(stream: usize, mode: i32) {
        begin(stream, mode)
    }
    ["cuStreamEndCapture" 10000 / cuStreamEndCapture_ptsz] fn cuStreamEndCapture(stream: usize, graph: *mut usize) {
        clock(driver()?, stream)?;
        captures(|captures| captures.remove(&stream)).ok_or(Code::ILLEGAL_STATE)?;
        put(graph, usize::try_from(0x7b00_0000_0000 + fresh_id() * 0x100).map_err(|_| Code::UNKNOWN)?)
    }
    // No process is ever locked here, which has to come first.
    ["cuCheckpointProcessCheckpoint" 12080] fn cuCheckpointProcessCheckpoint(_pid: i32, _arguments: usize) {
        driver()?;
        Err(Code::ILLEGAL_STATE)
    }
    ["cuThreadExchangeStreamCaptureMode" 10010] fn cuThreadExchangeStreamCaptureMode(mode: *mut i32) {
        driver()?;
        if mode.is_null() || !matches!(*mode, GLOBAL | THREAD_LOCAL | RELAXED) {
            return Err(Code::INVALID_VALUE);
        }
        put(mode, MODE.replace(*mode))
    }
}
