//! Events: a stream's clock at the moment of recording, and the simulated time between two of them.

use crate::code::{Code, Outcome};
use crate::context::current;
use crate::driver::{Driver, driver};
use crate::entry::put;
use crate::native::fresh_id;
use crate::stream::clock;

const DISABLE_TIMING: u32 = 2;
const FLAGS_KNOWN: u32 = 7;

#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub(crate) context: usize,
    pub(crate) recorded_ns: Option<u64>,
    timing: bool,
}

fn known(driver: &Driver, event: usize) -> Outcome {
    driver.events().get(&event).map(|_| ()).ok_or(Code::INVALID_HANDLE)
}

fn record(event: usize, stream: usize) -> Outcome {
    let driver = driver()?;
    let now = clock(driver, stream)?;
    driver.events().get_mut(&event).ok_or(Code::INVALID_HANDLE)?.recorded_ns = Some(now);
    Ok(())
}

fn destroy(event: usize) -> Outcome {
    driver()?.events().remove(&event).map(|_| ()).ok_or(Code::INVALID_HANDLE)
}

/// Milliseconds, the unit of the interface.
#[allow(clippy::float_arithmetic, clippy::cast_precision_loss, clippy::cast_possible_truncation)] // the interface answers a float; nothing is decided by it
fn elapsed(from: usize, to: usize) -> Result<f32, Code> {
    let driver = driver()?;
    let events = driver.events();
    let event = |id| events.get(&id).filter(|event: &&Event| event.timing).ok_or(Code::INVALID_HANDLE);
    let (from, to) = (event(from)?.recorded_ns, event(to)?.recorded_ns);
    let (from, to) = from.zip(to).ok_or(Code::INVALID_HANDLE)?;
    Ok((to as f64 - from as f64) as f32 / 1.0e6)
}

driver_api! {
    ["cuEventCreate" 2000] fn cuEventCreate(event: *mut usize, flags: u32) {
        let driver = driver()?;
        let here = current(driver)?;
        if event.is_null() || flags & !FLAGS_KNOWN != 0 {
            return Err(Code::INVALID_VALUE);
        }
        let id = usize::try_from(0x7e00_0000_0000 + fresh_id() * 0x100).map_err(|_| Code::UNKNOWN)?;
        let timing = flags & DISABLE_TIMING == 0;
        driver.events().insert(id, Event { context: here.id, recorded_ns: None, timing });
        put(event, id)
    }
    ["cuEventDestroy" 4000] fn cuEventDestroy_v2(event: usize) { destroy(event) }
    ["cuEventDestroy" 2000] fn cuEventDestroy(event: usize) { destroy(event) }
    ["cuEventRecord" 2000 / cuEventRecord_ptsz] fn cuEventRecord(event: usize, stream: usize) {
        record(event, stream)
    }
    ["cuEventRecordWithFlags" 11010 / cuEventRecordWithFlags_ptsz] fn cuEventRecordWithFlags(
        event: usize, stream: usize, _flags: u32,
    ) {
        record(event, stream)
    }
    ["cuEventQuery" 2000] fn cuEventQuery(event: usize) { known(driver()?, event) }
    ["cuEventSynchronize" 2000] fn cuEventSynchronize(event: usize) { known(driver()?, event) }
    ["cuEventElapsedTime" 2000] fn cuEventElapsedTime(milliseconds: *mut f32, from: usize, to: usize) {
        put(milliseconds, elapsed(from, to)?)
    }
    ["cuEventElapsedTime" 12080] fn cuEventElapsedTime_v2(milliseconds: *mut f32, from: usize, to: usize) {
        put(milliseconds, elapsed(from, to)?)
    }
}
