//! Launches: collects a kernel's parameters and hands them to the built-in of its name.

use std::ffi::c_void;

use crate::code::{Code, Outcome};
use crate::context::current;
use crate::driver::driver;
use crate::kernels::{Launch, run};
use crate::stream::{advance, busy_elsewhere};

const BUFFER_POINTER: usize = 1;
const BUFFER_SIZE: usize = 2;
const PARAMETERS_MAX: usize = 4;

/// Reads up to four 64-bit parameters, from the pointer list or from the packed buffer.
unsafe fn parameters(
    list: *mut *mut c_void,
    extra: *mut *mut c_void,
    count: usize,
) -> Result<[u64; PARAMETERS_MAX], Code> {
    let mut values = [0; PARAMETERS_MAX];
    let mut buffer = std::ptr::null::<u64>();
    if !extra.is_null() {
        // SAFETY: the list ends with a NULL key, as the interface asks.
        unsafe {
            let mut at = extra;
            while !(*at).is_null() {
                match *at as usize {
                    BUFFER_POINTER => buffer = (*at.add(1)).cast(),
                    BUFFER_SIZE => {}
                    _ => return Err(Code::INVALID_VALUE),
                }
                at = at.add(2);
            }
        }
    }
    if list.is_null() && buffer.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    for (at, value) in values.iter_mut().enumerate().take(count) {
        // SAFETY: the kernel has `count` parameters of eight bytes, so the caller gives as many.
        *value = unsafe {
            if list.is_null() {
                buffer.add(at).read_unaligned()
            } else {
                (*list.add(at)).cast::<u64>().read_unaligned()
            }
        };
    }
    Ok(values)
}

fn launch(
    function: usize,
    threads: u64,
    list: *mut *mut c_void,
    extra: *mut *mut c_void,
    stream: usize,
) -> Outcome {
    let driver = driver()?;
    let here = current(driver)?;
    if threads == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let name = driver.modules().function(function)?.name;
    let count = crate::kernels::parameter_count(&name).ok_or(Code::NOT_SUPPORTED)?;
    // SAFETY: the caller launches with the parameters of the kernel that it named.
    let values = unsafe { parameters(list, extra, count)? };
    let loaded = busy_elsewhere(driver, stream)?;
    let nanoseconds = run(driver, here, &Launch { name: &name, threads, values, loaded })?;
    advance(driver, stream, nanoseconds)
}

fn product(sizes: [u32; 6]) -> u64 {
    sizes.iter().map(|size| u64::from(*size)).product()
}

/// `CUlaunchConfig`, the part that matters.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LaunchConfiguration {
    sizes: [u32; 6],
    shared_bytes: u32,
    stream: usize,
}

driver_api! {
    ["cuLaunchKernel" 4000 / cuLaunchKernel_ptsz] fn cuLaunchKernel(
        function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared_bytes: u32, stream: usize, list: *mut *mut c_void, extra: *mut *mut c_void,
    ) {
        launch(function, product([grid_x, grid_y, grid_z, block_x, block_y, block_z]), list, extra, stream)
    }
    ["cuLaunchCooperativeKernel" 9000 / cuLaunchCooperativeKernel_ptsz] fn cuLaunchCooperativeKernel(
        function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
        _shared_bytes: u32, stream: usize, list: *mut *mut c_void,
    ) {
        let sizes = [grid_x, grid_y, grid_z, block_x, block_y, block_z];
        launch(function, product(sizes), list, std::ptr::null_mut(), stream)
    }
    ["cuLaunchKernelEx" 11060 / cuLaunchKernelEx_ptsz] fn cuLaunchKernelEx(
        configuration: *const LaunchConfiguration, function: usize, list: *mut *mut c_void, extra: *mut *mut c_void,
    ) {
        let configuration = crate::entry::get(configuration)?;
        launch(function, product(configuration.sizes), list, extra, configuration.stream)
    }
}
