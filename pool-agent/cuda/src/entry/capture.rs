//! Captures and graphs: nothing is changed, only remembered (see [`crate::capture`]).

use crate::abi::{CAPTURE_GLOBAL, CAPTURE_WRONG_THREAD, Code, Opaque, SUCCESS};
use crate::{capture, pool};

fn pin() {
    if let Some(pool) = pool::current() {
        capture::pin(pool.upcoming_block_id());
    }
}

fn begun(code: Code, stream: Opaque, mode: i32) -> Code {
    if code == SUCCESS {
        capture::begun(stream as usize, mode);
        pin();
    }
    code
}

/// The first form has no mode: it is global.
pub(crate) unsafe fn begin_v1(real: unsafe extern "C" fn(Opaque) -> Code, stream: Opaque) -> Code {
    // SAFETY: passed on.
    begun(unsafe { real(stream) }, stream, CAPTURE_GLOBAL)
}

pub(crate) unsafe fn begin(
    real: unsafe extern "C" fn(Opaque, i32) -> Code,
    stream: Opaque,
    mode: i32,
) -> Code {
    // SAFETY: passed on.
    begun(unsafe { real(stream, mode) }, stream, mode)
}

pub(crate) unsafe fn begin_to_graph(
    real: unsafe extern "C" fn(Opaque, Opaque, *const Opaque, Opaque, usize, i32) -> Code,
    stream: Opaque,
    graph: Opaque,
    dependencies: *const Opaque,
    edges: Opaque,
    count: usize,
    mode: i32,
) -> Code {
    // SAFETY: passed on.
    begun(unsafe { real(stream, graph, dependencies, edges, count, mode) }, stream, mode)
}

/// A capture that broke is over too; one of another thread goes on.
pub(crate) unsafe fn end(
    real: unsafe extern "C" fn(Opaque, *mut Opaque) -> Code,
    stream: Opaque,
    graph: *mut Opaque,
) -> Code {
    // SAFETY: passed on.
    let code = unsafe { real(stream, graph) };
    if code != CAPTURE_WRONG_THREAD {
        capture::ended(stream as usize);
    }
    pin();
    code
}

pub(crate) unsafe fn instantiate(
    real: unsafe extern "C" fn(*mut Opaque, Opaque, *mut Opaque, *mut u8, usize) -> Code,
    made: *mut Opaque,
    graph: Opaque,
    node: *mut Opaque,
    log: *mut u8,
    room: usize,
) -> Code {
    pin();
    // SAFETY: passed on.
    unsafe { real(made, graph, node, log, room) }
}

pub(crate) unsafe fn instantiate_with_flags(
    real: unsafe extern "C" fn(*mut Opaque, Opaque, u64) -> Code,
    made: *mut Opaque,
    graph: Opaque,
    flags: u64,
) -> Code {
    pin();
    // SAFETY: passed on.
    unsafe { real(made, graph, flags) }
}

pub(crate) unsafe fn instantiate_with_params(
    real: unsafe extern "C" fn(*mut Opaque, Opaque, Opaque) -> Code,
    made: *mut Opaque,
    graph: Opaque,
    params: Opaque,
) -> Code {
    pin();
    // SAFETY: passed on.
    unsafe { real(made, graph, params) }
}
