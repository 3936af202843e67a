//! Memory handles between processes: the driver's own for native allocations, a token for spilled ones (see [`crate::ipc`]).

use crate::abi::{Code, DevicePtr, INVALID_CONTEXT, IpcHandle, SUCCESS};
use crate::entry::pointer::spilled;
use crate::ipc::{Token, close, open, token};
use crate::{pool, real};

pub(crate) unsafe fn get(
    real: unsafe extern "C" fn(*mut IpcHandle, DevicePtr) -> Code,
    handle: *mut IpcHandle,
    at: DevicePtr,
) -> Code {
    let found = pool::current().and_then(|pool| Some((pool, spilled(at)?)));
    let Some((pool, block)) = found.filter(|_| !handle.is_null()) else {
        // SAFETY: passed on.
        return unsafe { real(handle, at) };
    };
    if real::current_context().is_null() {
        return INVALID_CONTEXT;
    }
    match token(pool, &block) {
        Ok(made) => {
            // SAFETY: not null, and the tenant's own out-pointer.
            unsafe { handle.write_unaligned(made) };
            SUCCESS
        }
        Err(code) => code,
    }
}

pub(crate) unsafe fn open_handle(
    real: unsafe extern "C" fn(*mut DevicePtr, IpcHandle, u32) -> Code,
    at: *mut DevicePtr,
    handle: IpcHandle,
    flags: u32,
) -> Code {
    let found = pool::current().and_then(|pool| Some((pool, Token::of(&handle)?)));
    let Some((pool, token)) = found.filter(|_| !at.is_null()) else {
        // SAFETY: passed on.
        return unsafe { real(at, handle, flags) };
    };
    match open(pool, token) {
        Ok(start) => {
            // SAFETY: not null, and the tenant's own out-pointer.
            unsafe { *at = start };
            SUCCESS
        }
        Err(code) => code,
    }
}

pub(crate) unsafe fn close_handle(real: unsafe extern "C" fn(DevicePtr) -> Code, at: DevicePtr) -> Code {
    match pool::current().and_then(|pool| close(pool, at)) {
        Some(code) => code,
        // SAFETY: passed on.
        None => unsafe { real(at) },
    }
}
