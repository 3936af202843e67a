//! How an NVML function is declared, and the return codes.

use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A failing `nvmlReturn_t`; never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Return(pub(crate) u32);

pub(crate) type Outcome = Result<(), Return>;

macro_rules! returns {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Return { $(pub(crate) const $name: Self = Self($value);)* }
        const TEXTS: &[(u32, &CStr)] = &[(0, c"Success"), $(($value, $text),)*];
    };
}

returns! {
    UNINITIALIZED = 1, c"Uninitialized";
    INVALID_ARGUMENT = 2, c"Invalid Argument";
    NOT_SUPPORTED = 3, c"Not Supported";
    NO_PERMISSION = 4, c"Insufficient Permissions";
    NOT_FOUND = 6, c"Not Found";
    INSUFFICIENT_SIZE = 7, c"Insufficient Size";
    DRIVER_NOT_LOADED = 9, c"Driver Not Loaded";
    TIMEOUT = 10, c"Timeout";
    GPU_IS_LOST = 15, c"GPU is lost";
    ARGUMENT_VERSION_MISMATCH = 25, c"Argument version mismatch";
    UNKNOWN = 999, c"Unknown Error";
}

pub(crate) fn text(code: u32) -> *const c_char {
    let found = TEXTS.iter().find(|(value, _)| *value == code).map(|(_, text)| *text);
    found.unwrap_or(c"Unknown Error").as_ptr()
}

/// Runs a function's body: no panic crosses the C interface.
pub(crate) fn enter(body: impl FnOnce() -> Outcome) -> u32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(Return(code))) => code,
        Err(_) => Return::UNKNOWN.0,
    }
}

/// Writes an out-parameter; NULL is the caller's error.
///
/// # Safety
/// `to` is NULL or valid for a write of `T`.
pub(crate) unsafe fn put<T>(to: *mut T, value: T) -> Outcome {
    if to.is_null() {
        return Err(Return::INVALID_ARGUMENT);
    }
    // SAFETY: not NULL, and the caller vouches for the rest.
    unsafe { to.write(value) };
    Ok(())
}

/// Copies a text with its NUL; too little room is an error, as NVML has it.
///
/// # Safety
/// `to` is NULL or valid for `length` bytes.
pub(crate) unsafe fn put_text(to: *mut c_char, length: u32, text: &str) -> Outcome {
    if to.is_null() {
        return Err(Return::INVALID_ARGUMENT);
    }
    if (length as usize) <= text.len() {
        return Err(Return::INSUFFICIENT_SIZE);
    }
    // SAFETY: the text and its NUL fit into `length` bytes, for which the caller vouches.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

/// A text as a fixed C array.
pub(crate) fn text_array<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(text.bytes().take(N - 1)) {
        *to = from.cast_signed();
    }
    array
}

/// `fn symbol(args) { body }`, or `[other_symbol …] fn symbol` for names that mean the same.
macro_rules! nvml_api {
    ($( $(#[$doc:meta])* $([$($alias:ident)*])? fn $name:ident $arguments:tt $body:block )*) => {
        $( nvml_function! { $(#[$doc])* $name $arguments $body } $( nvml_aliases! { [$($alias)*] $name $arguments } )? )*
    };
}

macro_rules! nvml_function {
    ($(#[$doc:meta])* $name:ident ($($argument:ident : $type:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
            // SAFETY: C callers promise what the NVML header asks: pointers are NULL or valid for their documented use.
            #[allow(unused_unsafe)] // not every body needs it
            unsafe { crate::entry::enter(move || { let done = $body; done }) }
        }
    };
}

macro_rules! nvml_aliases {
    ([] $name:ident $arguments:tt) => {};
    ([$alias:ident $($rest:ident)*] $name:ident ($($argument:ident : $type:ty),* $(,)?)) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $alias($($argument: $type),*) -> u32 {
            // SAFETY: the same contract as the function it stands for.
            unsafe { $name($($argument),*) }
        }
        nvml_aliases! { [$($rest)*] $name ($($argument : $type),*) }
    };
}
