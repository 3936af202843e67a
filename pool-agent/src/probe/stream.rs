//! Kernels in the order of a stream, and the time that they took by the card's own clock.

#![allow(unsafe_code)] // The CUDA driver is a C library; every block below is one call of it with pointers to locals.

use std::ffi::{CString, c_void};

use cudarc::driver::sys::{self, CUresult};

use super::cuda::checked;
use super::words::ProbeError;

/// Work in order; two streams work at the same time.
#[derive(Debug)]
pub struct Stream {
    stream: sys::CUstream,
}

#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    function: sys::CUfunction,
}

/// How many threads a kernel gets.
#[derive(Debug, Clone, Copy)]
pub struct Grid {
    pub blocks: u32,
    pub threads: u32,
}

impl Stream {
    pub fn new() -> Result<Self, ProbeError> {
        let mut stream = std::ptr::null_mut();
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `stream` outlives the call; it is never destroyed, the process ends first.
        checked("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, flags) })?;
        Ok(Self { stream })
    }

    pub(super) fn raw(&self) -> sys::CUstream {
        self.stream
    }

    /// Launches a kernel, all of whose parameters are eight bytes.
    pub fn launch(&self, kernel: Kernel, grid: Grid, parameters: &[u64]) -> Result<(), ProbeError> {
        let mut values = parameters.to_vec();
        let mut pointers: Vec<*mut c_void> =
            values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        // SAFETY: one pointer for each parameter of the kernel, alive until the call returns, which copies them.
        let result = unsafe {
            sys::cuLaunchKernel(
                kernel.function,
                grid.blocks,
                1,
                1,
                grid.threads,
                1,
                1,
                0,
                self.stream,
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        checked("cuLaunchKernel", result)
    }

    /// Puts `work` between two events of this stream, waits, and returns the nanoseconds between them.
    pub fn timed(&self, work: impl FnOnce() -> Result<(), ProbeError>) -> Result<u64, ProbeError> {
        let (start, end) = (event()?, event()?);
        self.record(start)?;
        work()?;
        self.record(end)?;
        // SAFETY: the event was just recorded.
        checked("cuEventSynchronize", unsafe { sys::cuEventSynchronize(end) })?;
        let mut milliseconds = 0f32;
        // SAFETY: every driver has this symbol with this signature; the bindings know only its successor, which older ones lack.
        // Both events were recorded and `milliseconds` outlives the call.
        let result = unsafe {
            type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> CUresult;
            let elapsed =
                sys::culib().get::<Elapsed>(b"cuEventElapsedTime\0").map_err(|_| ProbeError::NoDriver)?;
            elapsed(&raw mut milliseconds, start, end)
        };
        checked("cuEventElapsedTime", result)?;
        Ok(nanoseconds(milliseconds))
    }

    fn record(&self, event: sys::CUevent) -> Result<(), ProbeError> {
        // SAFETY: the event and the stream were made by this process.
        checked("cuEventRecord", unsafe { sys::cuEventRecord(event, self.stream) })
    }
}

#[allow(clippy::float_arithmetic, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a measured time
fn nanoseconds(milliseconds: f32) -> u64 {
    (f64::from(milliseconds) * 1e6).max(0.0) as u64
}

fn event() -> Result<sys::CUevent, ProbeError> {
    let mut event = std::ptr::null_mut();
    // SAFETY: `event` outlives the call.
    checked("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, 0) })?;
    Ok(event)
}

/// The kernels of a module's text, by name, in the order of `names`.
pub fn load<const N: usize>(ptx: &str, names: [&'static str; N]) -> Result<[Kernel; N], ProbeError> {
    let image = CString::new(ptx).unwrap_or_default();
    let mut module = std::ptr::null_mut();
    // SAFETY: the image is a NUL-terminated text; the module is never unloaded.
    let result = unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) };
    checked("cuModuleLoadData", result)?;
    let mut kernels = [Kernel { function: std::ptr::null_mut() }; N];
    for (kernel, name) in kernels.iter_mut().zip(names) {
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the module was just loaded, and both pointers outlive the call.
        let result = unsafe { sys::cuModuleGetFunction(&raw mut kernel.function, module, name.as_ptr()) };
        checked("cuModuleGetFunction", result)?;
    }
    Ok(kernels)
}
