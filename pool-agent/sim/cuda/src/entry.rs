//! How a driver function is declared: once, with the name and version under which `cuGetProcAddress` finds it. The export
//! and the table row come from the same line, so they cannot differ.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::code::{Code, Outcome};

/// One exported symbol, as `cuGetProcAddress` knows it.
pub(crate) struct Row {
    /// The name asked for, without version suffix.
    pub(crate) base: &'static str,
    /// The first CUDA version that had this form.
    pub(crate) version: i32,
    pub(crate) address: *const c_void,
    /// The form for the per-thread default stream.
    pub(crate) per_thread: Option<*const c_void>,
}

// SAFETY: rows hold addresses of functions, which are immutable.
unsafe impl Sync for Row {}

/// Runs a driver function's body: no panic crosses the C interface.
pub(crate) fn enter(body: impl FnOnce() -> Outcome) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(Code(code))) => code,
        Err(_) => Code::UNKNOWN.0,
    }
}

/// Writes an out-parameter; NULL is the caller's error.
///
/// # Safety
/// `to` is NULL or valid for a write of `T`.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not NULL, and the caller vouches for the rest.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes an out-parameter that the caller may leave out.
///
/// # Safety
/// `to` is NULL or valid for a write of `T`.
pub(crate) unsafe fn offer<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: not NULL, and the caller vouches for the rest.
        unsafe { to.write(value) };
    }
}

/// Reads a parameter block; NULL is the caller's error.
///
/// # Safety
/// `from` is NULL or valid for a read of `T`.
pub(crate) unsafe fn get<T: Copy>(from: *const T) -> Result<T, Code> {
    if from.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not NULL, and the caller vouches for the rest.
    Ok(unsafe { from.read_unaligned() })
}

/// `["cuBase" version] fn symbol(args) { body }`, or `["cuBase" version / per_thread_symbol]` for functions that also
/// exist for the per-thread default stream. Streams are host-synchronous here, so both forms share their body.
macro_rules! driver_api {
    ($( $(#[$doc:meta])* [$($tag:tt)*] fn $name:ident $arguments:tt $body:block )*) => {
        $( driver_function! { $(#[$doc])* [$($tag)*] $name $arguments $body } )*
        pub(crate) static ROWS: &[crate::entry::Row] = &[$( driver_row! { [$($tag)*] $name } ),*];
    };
}

macro_rules! driver_function {
    ($(#[$doc:meta])* [$base:literal $version:literal] $name:ident ($($argument:ident : $type:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> i32 {
            // SAFETY: C callers promise what the CUDA headers ask: pointers are NULL or valid for their documented use.
            #[allow(unused_unsafe)] // not every body needs it
            unsafe { crate::entry::enter(move || { let done = $body; done }) }
        }
    };
    ($(#[$doc:meta])* [$base:literal $version:literal / $thread:ident] $name:ident ($($argument:ident : $type:ty),* $(,)?) $body:block) => {
        driver_function! { $(#[$doc])* [$base $version] $name ($($argument : $type),*) $body }
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $thread($($argument: $type),*) -> i32 {
            // SAFETY: the same contract as the function it stands for.
            unsafe { $name($($argument),*) }
        }
    };
}

macro_rules! driver_row {
    ([$base:literal $version:literal] $name:ident) => {
        crate::entry::Row {
            base: $base,
            version: $version,
            address: $name as *const std::ffi::c_void,
            per_thread: None,
        }
    };
    ([$base:literal $version:literal / $thread:ident] $name:ident) => {
        crate::entry::Row {
            base: $base,
            version: $version,
            address: $name as *const std::ffi::c_void,
            per_thread: Some($thread as *const std::ffi::c_void),
        }
    };
}
