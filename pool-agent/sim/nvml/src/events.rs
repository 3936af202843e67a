//! Events. The host's log of Xids is polled: a set remembers how far it has read.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::entry::{Outcome, Return, put};
use crate::session::{DeviceHandle, device, handle_of, host};

const XID: u64 = 8;
const TYPES_SUPPORTED: u64 = 0x1 | 0x2 | 0x4 | XID | 0x10 | 0x80 | 0x100;
const POLL_MS: u32 = 5;

#[derive(Debug, Clone)]
struct Set {
    /// The last event it has answered, or the newest at its creation.
    serial: u64,
    /// Card to wanted event types.
    wanted: HashMap<usize, u64>,
}

static SETS: Mutex<(usize, Option<HashMap<usize, Set>>)> = Mutex::new((0, None));

fn sets() -> MutexGuard<'static, (usize, Option<HashMap<usize, Set>>)> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_set<T>(id: usize, work: impl FnOnce(&mut Set) -> T) -> Result<T, Return> {
    sets().1.get_or_insert_default().get_mut(&id).map(work).ok_or(Return::INVALID_ARGUMENT)
}

/// `nvmlEventData_t`; the first form lacks the two instance numbers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct EventData {
    device: DeviceHandle,
    kind: u64,
    data: u64,
    gpu_instance: u32,
    compute_instance: u32,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct EventDataV1 {
    device: DeviceHandle,
    kind: u64,
    data: u64,
}

/// The next wanted event, waited for up to a timeout.
fn wait(id: usize, timeout_ms: u32) -> Result<EventData, Return> {
    let mut waited_ms = 0;
    loop {
        let host = host()?;
        let set = with_set(id, |set| set.clone())?;
        let wants = |card: usize| set.wanted.get(&card).is_some_and(|types| types & XID != 0);
        let xid = {
            let state = host.state().map_err(|_| Return::UNKNOWN)?;
            state.xid_after(set.serial, |xid| wants(xid.gpu as usize))
        };
        if let Some(xid) = xid {
            with_set(id, |set| set.serial = xid.serial)?;
            let device = handle_of(xid.gpu as usize);
            let (gpu_instance, compute_instance) = (u32::MAX, u32::MAX);
            return Ok(EventData {
                device,
                kind: XID,
                data: xid.code.into(),
                gpu_instance,
                compute_instance,
            });
        }
        if waited_ms >= timeout_ms {
            return Err(Return::TIMEOUT);
        }
        std::thread::sleep(Duration::from_millis(POLL_MS.into()));
        waited_ms = waited_ms.saturating_add(POLL_MS);
    }
}

fn register(handle: DeviceHandle, types: u64, id: usize) -> Outcome {
    let device = device(handle)?;
    if types & !TYPES_SUPPORTED != 0 {
        return Err(Return::NOT_SUPPORTED);
    }
    with_set(id, |set| *set.wanted.entry(device.card).or_insert(0) |= types)
}

nvml_api! {
    fn nvmlEventSetCreate(set: *mut usize) {
        let host = host()?;
        if set.is_null() {
            return Err(Return::INVALID_ARGUMENT);
        }
        let serial = host.state().map_err(|_| Return::UNKNOWN)?.xid_serial;
        let mut sets = sets();
        sets.0 += 1;
        let id = 0x6e76_e000_0000 + sets.0 * 0x10;
        sets.1.get_or_insert_default().insert(id, Set { serial, wanted: HashMap::new() });
        put(set, id)
    }
    fn nvmlEventSetFree(set: usize) {
        sets().1.get_or_insert_default().remove(&set).map(|_| ()).ok_or(Return::INVALID_ARGUMENT)
    }
    fn nvmlDeviceRegisterEvents(handle: DeviceHandle, types: u64, set: usize) { register(handle, types, set) }
    fn nvmlDeviceGetSupportedEventTypes(handle: DeviceHandle, types: *mut u64) {
        device(handle)?;
        put(types, TYPES_SUPPORTED)
    }
    fn nvmlEventSetWait_v2(set: usize, data: *mut EventData, timeout_ms: u32) {
        if data.is_null() {
            return Err(Return::INVALID_ARGUMENT);
        }
        put(data, wait(set, timeout_ms)?)
    }
    fn nvmlEventSetWait(set: usize, data: *mut EventDataV1, timeout_ms: u32) {
        if data.is_null() {
            return Err(Return::INVALID_ARGUMENT);
        }
        let event = wait(set, timeout_ms)?;
        put(data, EventDataV1 { device: event.device, kind: event.kind, data: event.data })
    }
}
