//! Streams. Work is done before a call returns; what a stream keeps is its clock, the simulated time at which its work
//! would have ended, so that events measure the described hardware and not this machine.

use crate::code::{Code, Outcome};
use crate::context::current;
use crate::driver::{Driver, driver};
use crate::entry::{offer, put};
use crate::native::fresh_id;

#[derive(Debug, Clone)]
pub(crate) struct Stream {
    pub(crate) context: usize,
    pub(crate) clock_ns: u64,
    flags: u32,
    priority: i32,
}

/// Default streams: NULL, legacy, per thread. They share one clock per context.
fn key(driver: &Driver, stream: usize) -> Result<usize, Code> {
    if stream > 2 {
        return Ok(stream);
    }
    Ok(current(driver)?.id)
}

fn with_stream<T>(driver: &Driver, stream: usize, work: impl FnOnce(&mut Stream) -> T) -> Result<T, Code> {
    let key = key(driver, stream)?;
    let mut streams = driver.streams();
    if stream <= 2 {
        let default = Stream { context: key, clock_ns: 0, flags: 0, priority: 0 };
        return Ok(work(streams.entry(key).or_insert(default)));
    }
    streams.get_mut(&key).map(work).ok_or(Code::INVALID_HANDLE)
}

/// Adds work to a stream's clock.
pub(crate) fn advance(driver: &Driver, stream: usize, nanoseconds: u64) -> Outcome {
    if driver.machine().latency {
        std::thread::sleep(std::time::Duration::from_nanos(nanoseconds));
    }
    with_stream(driver, stream, |stream| stream.clock_ns += nanoseconds)
}

pub(crate) fn clock(driver: &Driver, stream: usize) -> Result<u64, Code> {
    with_stream(driver, stream, |stream| stream.clock_ns)
}

/// Whether another stream of the process has work beyond this one's clock.
pub(crate) fn busy_elsewhere(driver: &Driver, stream: usize) -> Result<bool, Code> {
    let now = clock(driver, stream)?;
    Ok(driver.streams().values().any(|other| other.clock_ns > now))
}

/// After a wait for everything, every stream goes on from the same instant.
pub(crate) fn align(driver: &Driver) {
    let mut streams = driver.streams();
    let latest = streams.values().map(|stream| stream.clock_ns).max().unwrap_or(0);
    streams.values_mut().for_each(|stream| stream.clock_ns = latest);
}

fn wait_until(driver: &Driver, stream: usize, clock_ns: u64) -> Outcome {
    with_stream(driver, stream, |stream| stream.clock_ns = stream.clock_ns.max(clock_ns))
}

fn create(stream: *mut usize, flags: u32, priority: i32) -> Outcome {
    let driver = driver()?;
    let here = current(driver)?;
    if stream.is_null() || flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    let id = usize::try_from(0x7d00_0000_0000 + fresh_id() * 0x100).map_err(|_| Code::UNKNOWN)?;
    // A stream begins now: when everything that was waited for is over.
    let clock_ns = driver.streams().values().map(|other| other.clock_ns).max().unwrap_or(0);
    driver.streams().insert(id, Stream { context: here.id, clock_ns, flags, priority });
    // SAFETY: checked for NULL above; the caller vouches for the rest.
    unsafe { put(stream, id) }
}

fn destroy(stream: usize) -> Outcome {
    let removed = driver()?.streams().remove(&stream).filter(|_| stream > 2);
    removed.map(|_| ()).ok_or(Code::INVALID_HANDLE)
}

type HostFunction = Option<unsafe extern "C" fn(*mut std::ffi::c_void)>;
type StreamCallback = Option<unsafe extern "C" fn(usize, i32, *mut std::ffi::c_void)>;

driver_api! {
    ["cuStreamCreate" 2000] fn cuStreamCreate(stream: *mut usize, flags: u32) {
        create(stream, flags, 0)
    }
    ["cuStreamCreateWithPriority" 5050] fn cuStreamCreateWithPriority(stream: *mut usize, flags: u32, priority: i32) {
        create(stream, flags, priority.clamp(-5, 0))
    }
    ["cuStreamDestroy" 4000] fn cuStreamDestroy_v2(stream: usize) { destroy(stream) }
    ["cuStreamDestroy" 2000] fn cuStreamDestroy(stream: usize) { destroy(stream) }
    ["cuStreamSynchronize" 2000 / cuStreamSynchronize_ptsz] fn cuStreamSynchronize(stream: usize) {
        let driver = driver()?;
        clock(driver, stream)?;
        match crate::context::cuCtxSynchronize() { 0 => Ok(()), code => Err(Code(code)) }
    }
    ["cuStreamQuery" 2000 / cuStreamQuery_ptsz] fn cuStreamQuery(stream: usize) {
        clock(driver()?, stream).map(|_| ())
    }
    ["cuStreamWaitEvent" 3020 / cuStreamWaitEvent_ptsz] fn cuStreamWaitEvent(stream: usize, event: usize, _flags: u32) {
        let driver = driver()?;
        let recorded = driver.events().get(&event).map(|event| event.recorded_ns).ok_or(Code::INVALID_HANDLE)?;
        wait_until(driver, stream, recorded.unwrap_or(0))
    }
    ["cuStreamGetFlags" 5050 / cuStreamGetFlags_ptsz] fn cuStreamGetFlags(stream: usize, flags: *mut u32) {
        put(flags, with_stream(driver()?, stream, |stream| stream.flags)?)
    }
    ["cuStreamGetPriority" 5050 / cuStreamGetPriority_ptsz] fn cuStreamGetPriority(stream: usize, priority: *mut i32) {
        put(priority, with_stream(driver()?, stream, |stream| stream.priority)?)
    }
    ["cuStreamGetCtx" 9020 / cuStreamGetCtx_ptsz] fn cuStreamGetCtx(stream: usize, context: *mut usize) {
        put(context, with_stream(driver()?, stream, |stream| stream.context)?)
    }
    ["cuStreamGetId" 12000 / cuStreamGetId_ptsz] fn cuStreamGetId(stream: usize, id: *mut u64) {
        clock(driver()?, stream)?;
        put(id, stream as u64)
    }
    ["cuStreamGetCaptureInfo" 12000 / cuStreamGetCaptureInfo_v2_ptsz] fn cuStreamGetCaptureInfo_v2(
        stream: usize, status: *mut i32, id: *mut u64, graph: *mut usize, nodes: *mut usize, count: *mut usize,
    ) {
        clock(driver()?, stream)?;
        put(status, i32::from(crate::capture::active(stream)))?;
        offer(id, 0);
        offer(graph, 0);
        offer(nodes, 0);
        offer(count, 0);
        Ok(())
    }
    ["cuLaunchHostFunc" 10000 / cuLaunchHostFunc_ptsz] fn cuLaunchHostFunc(
        stream: usize, function: HostFunction, data: *mut std::ffi::c_void,
    ) {
        clock(driver()?, stream)?;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        function(data);
        Ok(())
    }
    ["cuStreamAddCallback" 5000 / cuStreamAddCallback_ptsz] fn cuStreamAddCallback(
        stream: usize, callback: StreamCallback, data: *mut std::ffi::c_void, _flags: u32,
    ) {
        clock(driver()?, stream)?;
        let callback = callback.ok_or(Code::INVALID_VALUE)?;
        callback(stream, 0, data);
        Ok(())
    }
    ["cuStreamAttachMemAsync" 6000 / cuStreamAttachMemAsync_ptsz] fn cuStreamAttachMemAsync(
        stream: usize, _pointer: u64, _bytes: usize, _flags: u32,
    ) {
        clock(driver()?, stream).map(|_| ())
    }
}
