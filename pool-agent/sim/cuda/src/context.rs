//! Contexts: whose card a thread works on. A process's first context on a card costs the card memory and shows the process
//! in NVML; the last one gives it back.

use std::cell::RefCell;
use std::collections::HashMap;

use crate::code::{Code, Outcome};
use crate::driver::{Driver, driver};
use crate::entry::{get, offer, put};
use crate::memory::with_room;
use crate::native::fresh_id;

const FLAGS_KNOWN: u32 = 0xff;
const API_VERSION: u32 = 3020;

#[derive(Debug, Default)]
pub(crate) struct Contexts {
    live: HashMap<usize, Context>,
    primaries: HashMap<usize, Primary>,
}

#[derive(Debug)]
struct Context {
    card: usize,
    flags: u32,
    primary: bool,
    /// An error that every later call of this context repeats.
    sticky: Option<Code>,
    /// Cards whose memory this context may reach without virtual memory grants.
    peers: Vec<usize>,
    limits: HashMap<i32, usize>,
}

#[derive(Debug, Default)]
struct Primary {
    context: Option<usize>,
    retained: u32,
    flags: u32,
}

/// The calling thread's context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Current {
    pub(crate) id: usize,
    pub(crate) card: usize,
}

thread_local! {
    static STACK: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

fn top() -> Option<usize> {
    STACK.with_borrow(|stack| stack.last().copied()).filter(|id| *id != 0)
}

/// The thread's context and its card; fails as the driver does without one, after it was destroyed, after it broke.
pub(crate) fn current(driver: &Driver) -> Result<Current, Code> {
    let id = top().ok_or(Code::INVALID_CONTEXT)?;
    let contexts = driver.contexts();
    let context = contexts.live.get(&id).ok_or(Code::CONTEXT_IS_DESTROYED)?;
    context.sticky.map_or(Ok(Current { id, card: context.card }), Err)
}

/// Breaks a context for good, as a lost card does.
pub(crate) fn poison(driver: &Driver, id: usize, code: Code) -> Code {
    if let Some(context) = driver.contexts().live.get_mut(&id) {
        context.sticky = Some(code);
    }
    code
}

/// The card of any context.
pub(crate) fn card_of(driver: &Driver, id: usize) -> Result<usize, Code> {
    driver.contexts().live.get(&id).map(|context| context.card).ok_or(Code::INVALID_CONTEXT)
}

/// The cards that a context's thread has enabled as peers.
pub(crate) fn with_peers<T>(
    driver: &Driver,
    id: usize,
    change: impl FnOnce(&mut Vec<usize>) -> Result<T, Code>,
) -> Result<T, Code> {
    let mut contexts = driver.contexts();
    change(&mut contexts.live.get_mut(&id).ok_or(Code::INVALID_CONTEXT)?.peers)
}

const PROHIBITED: u32 = 2;
const EXCLUSIVE_PROCESS: u32 = 3;

/// Whether the card's compute mode lets this process have a context.
fn admitted(driver: &Driver, card: usize) -> Outcome {
    let (lost, mode) = {
        let state = driver.state()?;
        (state.gpus[card].lost != 0, state.gpus[card].compute_mode)
    };
    if lost {
        return Err(Code::NO_DEVICE);
    }
    let others = || {
        let state = driver.attached.swept().map_err(|_| Code::UNKNOWN)?;
        let mut slots = (0..state.holders_high as usize).filter(|slot| *slot != driver.holder());
        Ok(slots.any(|slot| state.process_bytes(slot, card).is_some()))
    };
    match mode {
        PROHIBITED => Err(Code::DEVICE_UNAVAILABLE),
        EXCLUSIVE_PROCESS if others()? => Err(Code::DEVICE_UNAVAILABLE),
        _ => Ok(()),
    }
}

fn open(driver: &Driver, card: usize, flags: u32, primary: bool) -> Result<usize, Code> {
    let bytes = driver.machine().gpus[card].context_bytes;
    admitted(driver, card)?;
    with_room(driver, |state| state.open_context(driver.holder(), card, bytes))?;
    let id = usize::try_from(0x7c00_0000_0000 + fresh_id() * 0x100).map_err(|_| Code::UNKNOWN)?;
    let context = Context { card, flags, primary, sticky: None, peers: Vec::new(), limits: HashMap::new() };
    driver.contexts().live.insert(id, context);
    Ok(id)
}

fn close(driver: &Driver, id: usize) -> Outcome {
    let context = driver.contexts().live.remove(&id).ok_or(Code::INVALID_CONTEXT)?;
    crate::native::free_context(driver, id);
    driver.streams().retain(|_, stream| stream.context != id);
    driver.events().retain(|_, event| event.context != id);
    driver.modules().forget_context(id);
    driver.state()?.close_context(driver.holder(), context.card);
    Ok(())
}

fn create(context: *mut usize, flags: u32, ordinal: i32) -> Outcome {
    let driver = driver()?;
    if context.is_null() || flags & !FLAGS_KNOWN != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let id = open(driver, driver.card(ordinal)?, flags, false)?;
    STACK.with_borrow_mut(|stack| stack.push(id));
    // SAFETY: checked for NULL above; the caller vouches for the rest.
    unsafe { put(context, id) }
}

fn retain_primary(driver: &Driver, card: usize) -> Result<usize, Code> {
    let mut made = None;
    loop {
        {
            let mut contexts = driver.contexts();
            let primary = contexts.primaries.entry(card).or_default();
            if let Some(id) = primary.context.or(made) {
                primary.context = Some(id);
                primary.retained += 1;
                drop(contexts);
                // Another thread was first: its context is the primary one.
                if let Some(spare) = made.filter(|made| *made != id) {
                    close(driver, spare)?;
                }
                return Ok(id);
            }
        }
        made = Some(open(driver, card, 0, true)?);
    }
}

fn release_primary(driver: &Driver, card: usize, all: bool) -> Outcome {
    let closing = {
        let mut contexts = driver.contexts();
        let primary = contexts.primaries.entry(card).or_default();
        if !all {
            primary.retained = primary.retained.checked_sub(1).ok_or(Code::INVALID_CONTEXT)?;
        }
        if all || primary.retained == 0 { primary.context.take() } else { None }
    };
    closing.map_or(Ok(()), |id| close(driver, id))
}

driver_api! {
    ["cuCtxCreate" 3020] fn cuCtxCreate_v2(context: *mut usize, flags: u32, device: i32) {
        create(context, flags, device)
    }
    ["cuCtxCreate" 2000] fn cuCtxCreate(context: *mut usize, flags: u32, device: i32) {
        create(context, flags, device)
    }
    ["cuCtxCreate" 11040] fn cuCtxCreate_v3(
        context: *mut usize, _affinities: *mut usize, count: i32, flags: u32, device: i32,
    ) {
        if count != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        create(context, flags, device)
    }
    ["cuCtxCreate" 12050] fn cuCtxCreate_v4(context: *mut usize, _parameters: *mut usize, flags: u32, device: i32) {
        create(context, flags, device)
    }
    ["cuCtxDestroy" 4000] fn cuCtxDestroy_v2(context: usize) {
        let driver = driver()?;
        if context == 0 {
            return Err(Code::INVALID_VALUE);
        }
        if driver.contexts().live.get(&context).is_some_and(|context| context.primary) {
            return Err(Code::INVALID_CONTEXT);
        }
        close(driver, context)?;
        STACK.with_borrow_mut(|stack| if stack.last() == Some(&context) { stack.pop(); });
        Ok(())
    }
    ["cuCtxDestroy" 2000] fn cuCtxDestroy(context: usize) {
        match cuCtxDestroy_v2(context) { 0 => Ok(()), code => Err(Code(code)) }
    }
    ["cuCtxAttach" 2000] fn cuCtxAttach(context: *mut usize, _flags: u32) {
        put(context, current(driver()?)?.id)
    }
    ["cuCtxDetach" 2000] fn cuCtxDetach(_context: usize) {
        current(driver()?).map(|_| ())
    }
    ["cuCtxSetCurrent" 4000] fn cuCtxSetCurrent(context: usize) {
        let driver = driver()?;
        if context != 0 && !driver.contexts().live.contains_key(&context) {
            return Err(Code::INVALID_CONTEXT);
        }
        STACK.with_borrow_mut(|stack| { stack.pop(); if context != 0 { stack.push(context); } });
        Ok(())
    }
    ["cuCtxGetCurrent" 4000] fn cuCtxGetCurrent(context: *mut usize) {
        driver()?;
        put(context, top().unwrap_or(0))
    }
    ["cuCtxPushCurrent" 4000] fn cuCtxPushCurrent_v2(context: usize) {
        if !driver()?.contexts().live.contains_key(&context) {
            return Err(Code::INVALID_CONTEXT);
        }
        STACK.with_borrow_mut(|stack| stack.push(context));
        Ok(())
    }
    ["cuCtxPushCurrent" 2000] fn cuCtxPushCurrent(context: usize) {
        match cuCtxPushCurrent_v2(context) { 0 => Ok(()), code => Err(Code(code)) }
    }
    ["cuCtxPopCurrent" 4000] fn cuCtxPopCurrent_v2(context: *mut usize) {
        driver()?;
        let popped = STACK.with_borrow_mut(Vec::pop).ok_or(Code::INVALID_CONTEXT)?;
        offer(context, popped);
        Ok(())
    }
    ["cuCtxPopCurrent" 2000] fn cuCtxPopCurrent(context: *mut usize) {
        match cuCtxPopCurrent_v2(context) { 0 => Ok(()), code => Err(Code(code)) }
    }
    ["cuCtxGetDevice" 2000] fn cuCtxGetDevice(device: *mut i32) {
        let driver = driver()?;
        let card = current(driver)?.card;
        put(device, driver.ordinal(card).ok_or(Code::INVALID_CONTEXT)?)
    }
    ["cuCtxGetDevice" 13000] fn cuCtxGetDevice_v2(device: *mut i32, context: usize) {
        let driver = driver()?;
        let card = if context == 0 { current(driver)?.card } else { card_of(driver, context)? };
        put(device, driver.ordinal(card).ok_or(Code::INVALID_CONTEXT)?)
    }
    ["cuCtxSynchronize" 2000] fn cuCtxSynchronize() {
        let driver = driver()?;
        let here = current(driver)?;
        crate::capture::permit()?;
        if driver.state()?.gpus[here.card].lost != 0 {
            return Err(poison(driver, here.id, Code::LAUNCH_FAILED));
        }
        crate::stream::align(driver);
        Ok(())
    }
    ["cuCtxSynchronize" 13000] fn cuCtxSynchronize_v2(context: usize) {
        if context == 0 {
            return match cuCtxSynchronize() { 0 => Ok(()), code => Err(Code(code)) };
        }
        card_of(driver()?, context).map(|_| ())
    }
    ["cuCtxGetApiVersion" 3020] fn cuCtxGetApiVersion(context: usize, version: *mut u32) {
        let driver = driver()?;
        if context == 0 { current(driver)?; } else { card_of(driver, context)?; }
        put(version, API_VERSION)
    }
    ["cuCtxGetFlags" 7000] fn cuCtxGetFlags(flags: *mut u32) {
        let driver = driver()?;
        let id = current(driver)?.id;
        let known = driver.contexts().live.get(&id).map_or(0, |context| context.flags);
        put(flags, known)
    }
    ["cuCtxSetFlags" 12010] fn cuCtxSetFlags(flags: u32) {
        let driver = driver()?;
        let id = current(driver)?.id;
        if let Some(context) = driver.contexts().live.get_mut(&id) {
            context.flags = flags;
        }
        Ok(())
    }
    ["cuCtxGetId" 12000] fn cuCtxGetId(context: usize, id: *mut u64) {
        let driver = driver()?;
        let context = if context == 0 { current(driver)?.id } else { context };
        card_of(driver, context)?;
        put(id, context as u64)
    }
    ["cuCtxGetLimit" 3010] fn cuCtxGetLimit(value: *mut usize, limit: i32) {
        let driver = driver()?;
        let id = current(driver)?.id;
        let set = driver.contexts().live.get(&id).and_then(|context| context.limits.get(&limit).copied());
        let default = match limit { 0 => 1024, 1 => 1 << 20, 2 => 8 << 20, 3 => 2, 4 => 2048, 5 => 128, 6 => 0,
            _ => return Err(Code::INVALID_VALUE) };
        put(value, set.unwrap_or(default))
    }
    ["cuCtxSetLimit" 3010] fn cuCtxSetLimit(limit: i32, value: usize) {
        let driver = driver()?;
        let id = current(driver)?.id;
        if !(0..=6).contains(&limit) {
            return Err(Code::INVALID_VALUE);
        }
        if let Some(context) = driver.contexts().live.get_mut(&id) {
            context.limits.insert(limit, value);
        }
        Ok(())
    }
    ["cuCtxGetCacheConfig" 3020] fn cuCtxGetCacheConfig(config: *mut i32) {
        current(driver()?)?;
        put(config, 0)
    }
    ["cuCtxSetCacheConfig" 3020] fn cuCtxSetCacheConfig(_config: i32) {
        current(driver()?).map(|_| ())
    }
    ["cuCtxGetStreamPriorityRange" 5050] fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) {
        current(driver()?)?;
        offer(least, 0);
        offer(greatest, -5);
        Ok(())
    }
    ["cuCtxResetPersistingL2Cache" 11000] fn cuCtxResetPersistingL2Cache() {
        current(driver()?).map(|_| ())
    }
    ["cuDevicePrimaryCtxRetain" 7000] fn cuDevicePrimaryCtxRetain(context: *mut usize, device: i32) {
        let driver = driver()?;
        if context.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        put(context, retain_primary(driver, driver.card(device)?)?)
    }
    ["cuDevicePrimaryCtxRelease" 11000] fn cuDevicePrimaryCtxRelease_v2(device: i32) {
        let driver = driver()?;
        release_primary(driver, driver.card(device)?, false)
    }
    ["cuDevicePrimaryCtxRelease" 7000] fn cuDevicePrimaryCtxRelease(device: i32) {
        let driver = driver()?;
        release_primary(driver, driver.card(device)?, false)
    }
    ["cuDevicePrimaryCtxReset" 11000] fn cuDevicePrimaryCtxReset_v2(device: i32) {
        let driver = driver()?;
        release_primary(driver, driver.card(device)?, true)
    }
    ["cuDevicePrimaryCtxReset" 7000] fn cuDevicePrimaryCtxReset(device: i32) {
        let driver = driver()?;
        release_primary(driver, driver.card(device)?, true)
    }
    ["cuDevicePrimaryCtxSetFlags" 11000] fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) {
        let driver = driver()?;
        let card = driver.card(device)?;
        driver.contexts().primaries.entry(card).or_default().flags = flags;
        Ok(())
    }
    ["cuDevicePrimaryCtxSetFlags" 7000] fn cuDevicePrimaryCtxSetFlags(device: i32, flags: u32) {
        match cuDevicePrimaryCtxSetFlags_v2(device, flags) { 0 => Ok(()), code => Err(Code(code)) }
    }
    ["cuDevicePrimaryCtxGetState" 7000] fn cuDevicePrimaryCtxGetState(
        device: i32, flags: *mut u32, active: *mut i32,
    ) {
        let driver = driver()?;
        let card = driver.card(device)?;
        let (set, live) = {
            let mut contexts = driver.contexts();
            let primary = contexts.primaries.entry(card).or_default();
            (primary.flags, primary.context.is_some())
        };
        put(flags, set)?;
        put(active, i32::from(live))
    }
    ["cuCtxGetSharedMemConfig" 4020] fn cuCtxGetSharedMemConfig(config: *mut i32) {
        current(driver()?)?;
        put(config, 1)
    }
    ["cuCtxSetSharedMemConfig" 4020] fn cuCtxSetSharedMemConfig(_config: i32) {
        current(driver()?).map(|_| ())
    }
    ["cuCtxGetExecAffinity" 11040] fn cuCtxGetExecAffinity(affinity: *mut i32, _kind: i32) {
        get(affinity.cast_const())?;
        Err(Code::NOT_SUPPORTED)
    }
}
