//! Contexts that end take their allocations with them, spilled ones too.

use crate::abi::{Code, Device, NOT_SUPPORTED, Opaque, SUCCESS};
use crate::{log, pool, real};

pub(crate) unsafe fn destroy(real: unsafe extern "C" fn(Opaque) -> Code, context: Opaque) -> Code {
    // SAFETY: passed on.
    let code = unsafe { real(context) };
    if code == SUCCESS
        && let Some(pool) = pool::current()
    {
        pool.context_gone(context);
    }
    code
}

/// A checkpoint holds the memory of one card; that of a process with donor memory would come back without it.
pub(crate) unsafe fn checkpoint(
    real: unsafe extern "C" fn(i32, Opaque) -> Code,
    pid: i32,
    arguments: Opaque,
) -> Code {
    let spilled = pool::current()
        .and_then(|pool| pool.link.pages())
        .is_some_and(|pages| u32::try_from(pid).is_ok_and(|pid| pid > 0 && pages.donor_bytes_of(pid) > 0));
    if spilled {
        log::warn(&format!("cuda: process {pid} holds donor memory and cannot be checkpointed"));
        return NOT_SUPPORTED;
    }
    // SAFETY: passed on.
    unsafe { real(pid, arguments) }
}

/// The primary context's handle, if it is alive. The reference taken to learn it is given back by `after`'s symbol itself.
fn primary(device: Device) -> Option<Opaque> {
    let (mut flags, mut active, mut context) = (0, 0, std::ptr::null_mut());
    // SAFETY: the out-pointers outlive the calls; the reference is dropped at once and was not the last.
    unsafe {
        if real::primary_state(device, &raw mut flags, &raw mut active) != SUCCESS || active == 0 {
            return None;
        }
        if real::primary_retain(&raw mut context, device) != SUCCESS {
            return None;
        }
        real::primary_release(device);
    }
    Some(context)
}

fn active(device: Device) -> bool {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: the out-pointers outlive the call.
    unsafe { real::primary_state(device, &raw mut flags, &raw mut active) == SUCCESS && active != 0 }
}

/// The last release destroys the context.
pub(crate) unsafe fn primary_release(real: unsafe extern "C" fn(Device) -> Code, device: Device) -> Code {
    let context = pool::current().and_then(|_| primary(device));
    // SAFETY: passed on.
    let code = unsafe { real(device) };
    if code == SUCCESS
        && let (Some(pool), Some(context)) = (pool::current(), context)
        && !active(device)
    {
        pool.context_gone(context);
    }
    code
}

/// A reset frees everything, whoever still holds the context.
pub(crate) unsafe fn primary_reset(real: unsafe extern "C" fn(Device) -> Code, device: Device) -> Code {
    let context = pool::current().and_then(|_| primary(device));
    // SAFETY: passed on.
    let code = unsafe { real(device) };
    if code == SUCCESS
        && let (Some(pool), Some(context)) = (pool::current(), context)
    {
        pool.context_gone(context);
    }
    code
}
