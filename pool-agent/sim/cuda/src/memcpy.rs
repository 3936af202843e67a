//! The linear copies. A device argument must be memory that the driver knows; a host argument may be anything.

use std::ffi::c_void;

use crate::code::{Code, Outcome};
use crate::context::{card_of, current};
use crate::driver::{Driver, driver};
use crate::stream::advance;
use crate::transfer::copy;

/// What an argument must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Device,
    Host,
    Any,
}

fn check(driver: &Driver, address: u64, side: Side) -> Outcome {
    let known = driver.space().on_card(address);
    let host_visible = || driver.space().pinned(address).is_some();
    let right = match side {
        Side::Device => known || host_visible(),
        Side::Host | Side::Any => address != 0,
    };
    if right { Ok(()) } else { Err(Code::INVALID_VALUE) }
}

fn linear(to: (u64, Side), from: (u64, Side), bytes: usize, stream: usize) -> Outcome {
    let driver = driver()?;
    let here = current(driver)?;
    if bytes == 0 {
        return Ok(());
    }
    check(driver, to.0, to.1)?;
    check(driver, from.0, from.1)?;
    let nanoseconds = copy(driver, here, to.0, from.0, bytes as u64)?;
    advance(driver, stream, nanoseconds)
}

/// A pitched copy, one row after the other; the layout of `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Copy2d {
    source: Corner2d,
    target: Corner2d,
    width_bytes: usize,
    height: usize,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Corner2d {
    x_bytes: usize,
    y: usize,
    memory_type: i32,
    host: u64,
    device: u64,
    array: usize,
    pitch: usize,
}

/// The layout of `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Copy3d {
    source: Corner3d,
    target: Corner3d,
    width_bytes: usize,
    height: usize,
    depth: usize,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Corner3d {
    x_bytes: usize,
    y: usize,
    z: usize,
    level: usize,
    memory_type: i32,
    host: u64,
    device: u64,
    array: usize,
    context: usize,
    pitch: usize,
    height: usize,
}

/// The base address of a corner: `CUmemorytype` 1 host, 2 device, 4 unified; arrays are not simulated.
fn base(memory_type: i32, host: u64, device: u64) -> Result<u64, Code> {
    match memory_type {
        1 => Ok(host),
        2 | 4 => Ok(device),
        3 => Err(Code::NOT_SUPPORTED),
        _ => Err(Code::INVALID_VALUE),
    }
}

impl Corner2d {
    fn row(&self, row: usize) -> Result<u64, Code> {
        let start = base(self.memory_type, self.host, self.device)?;
        Ok(start + ((self.y + row) * self.pitch + self.x_bytes) as u64)
    }
}

impl Corner3d {
    fn row(&self, slice: usize, row: usize) -> Result<u64, Code> {
        let start = base(self.memory_type, self.host, self.device)?;
        let rows = (self.z + slice) * self.height + self.y + row;
        Ok(start + (rows * self.pitch + self.x_bytes) as u64)
    }
}

fn pitched(parameters: *const Copy2d, stream: usize) -> Outcome {
    // SAFETY: NULL or a parameter block, as the interface asks.
    let parameters = unsafe { crate::entry::get(parameters)? };
    let pitches = [parameters.source.pitch, parameters.target.pitch];
    if parameters.height > 1 && pitches.iter().any(|pitch| *pitch < parameters.width_bytes) {
        return Err(Code::INVALID_VALUE);
    }
    for row in 0..parameters.height {
        let (to, from) = (parameters.target.row(row)?, parameters.source.row(row)?);
        linear((to, Side::Any), (from, Side::Any), parameters.width_bytes, stream)?;
    }
    Ok(())
}

fn boxed(parameters: *const Copy3d, stream: usize) -> Outcome {
    // SAFETY: NULL or a parameter block, as the interface asks.
    let parameters = unsafe { crate::entry::get(parameters)? };
    for slice in 0..parameters.depth {
        for row in 0..parameters.height {
            let (to, from) = (parameters.target.row(slice, row)?, parameters.source.row(slice, row)?);
            linear((to, Side::Any), (from, Side::Any), parameters.width_bytes, stream)?;
        }
    }
    Ok(())
}

fn peer(to: (u64, usize), from: (u64, usize), bytes: usize, stream: usize) -> Outcome {
    let driver = driver()?;
    card_of(driver, to.1)?;
    card_of(driver, from.1)?;
    linear((to.0, Side::Device), (from.0, Side::Device), bytes, stream)
}

driver_api! {
    ["cuMemcpyHtoD" 3020 / cuMemcpyHtoD_v2_ptds] fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, bytes: usize) {
        linear((to, Side::Device), (from as u64, Side::Host), bytes, 0)
    }
    ["cuMemcpyHtoDAsync" 3020 / cuMemcpyHtoDAsync_v2_ptsz] fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, bytes: usize, stream: usize) {
        linear((to, Side::Device), (from as u64, Side::Host), bytes, stream)
    }
    ["cuMemcpyDtoH" 3020 / cuMemcpyDtoH_v2_ptds] fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, bytes: usize) {
        linear((to as u64, Side::Host), (from, Side::Device), bytes, 0)
    }
    ["cuMemcpyDtoHAsync" 3020 / cuMemcpyDtoHAsync_v2_ptsz] fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, bytes: usize, stream: usize) {
        linear((to as u64, Side::Host), (from, Side::Device), bytes, stream)
    }
    ["cuMemcpyDtoD" 3020 / cuMemcpyDtoD_v2_ptds] fn cuMemcpyDtoD_v2(to: u64, from: u64, bytes: usize) {
        linear((to, Side::Device), (from, Side::Device), bytes, 0)
    }
    ["cuMemcpyDtoDAsync" 3020 / cuMemcpyDtoDAsync_v2_ptsz] fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: usize) {
        linear((to, Side::Device), (from, Side::Device), bytes, stream)
    }
    ["cuMemcpy" 4000 / cuMemcpy_ptds] fn cuMemcpy(to: u64, from: u64, bytes: usize) {
        linear((to, Side::Any), (from, Side::Any), bytes, 0)
    }
    ["cuMemcpyAsync" 4000 / cuMemcpyAsync_ptsz] fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: usize) {
        linear((to, Side::Any), (from, Side::Any), bytes, stream)
    }
    ["cuMemcpyPeer" 4000 / cuMemcpyPeer_ptds] fn cuMemcpyPeer(to: u64, to_context: usize, from: u64, from_context: usize, bytes: usize) {
        peer((to, to_context), (from, from_context), bytes, 0)
    }
    ["cuMemcpyPeerAsync" 4000 / cuMemcpyPeerAsync_ptsz] fn cuMemcpyPeerAsync(to: u64, to_context: usize, from: u64, from_context: usize, bytes: usize, stream: usize) {
        peer((to, to_context), (from, from_context), bytes, stream)
    }
    ["cuMemcpy2D" 3020 / cuMemcpy2D_v2_ptds] fn cuMemcpy2D_v2(parameters: *const Copy2d) {
        pitched(parameters, 0)
    }
    ["cuMemcpy2DUnaligned" 3020 / cuMemcpy2DUnaligned_v2_ptds] fn cuMemcpy2DUnaligned_v2(parameters: *const Copy2d) {
        pitched(parameters, 0)
    }
    ["cuMemcpy2DAsync" 3020 / cuMemcpy2DAsync_v2_ptsz] fn cuMemcpy2DAsync_v2(parameters: *const Copy2d, stream: usize) {
        pitched(parameters, stream)
    }
    ["cuMemcpy3D" 3020 / cuMemcpy3D_v2_ptds] fn cuMemcpy3D_v2(parameters: *const Copy3d) {
        boxed(parameters, 0)
    }
    ["cuMemcpy3DAsync" 3020 / cuMemcpy3DAsync_v2_ptsz] fn cuMemcpy3DAsync_v2(parameters: *const Copy3d, stream: usize) {
        boxed(parameters, stream)
    }
    ["cuMemcpy3DPeer" 4000 / cuMemcpy3DPeer_ptds] fn cuMemcpy3DPeer(parameters: *const Copy3d) {
        boxed(parameters, 0)
    }
    ["cuMemcpy3DPeerAsync" 4000 / cuMemcpy3DPeerAsync_ptsz] fn cuMemcpy3DPeerAsync(parameters: *const Copy3d, stream: usize) {
        boxed(parameters, stream)
    }
}
