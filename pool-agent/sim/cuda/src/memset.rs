//! The fills.

use crate::code::{Code, Outcome};
use crate::context::current;
use crate::driver::driver;
use crate::stream::advance;
use crate::transfer::fill;

fn linear(to: u64, pattern: &[u8], count: usize, stream: usize) -> Outcome {
    let driver = driver()?;
    let here = current(driver)?;
    if count == 0 {
        return Ok(());
    }
    let width = pattern.len() as u64;
    if !to.is_multiple_of(width) {
        return Err(Code::INVALID_VALUE);
    }
    let known = {
        let space = driver.space();
        space.on_card(to) || space.pinned(to).is_some()
    };
    if !known {
        return Err(Code::INVALID_VALUE);
    }
    let bytes = (count as u64).checked_mul(width).ok_or(Code::INVALID_VALUE)?;
    let nanoseconds = fill(driver, here, to, pattern, bytes)?;
    advance(driver, stream, nanoseconds)
}

fn pitched(to: u64, pitch: usize, pattern: &[u8], width: usize, height: usize, stream: usize) -> Outcome {
    (0..height).try_for_each(|row| linear(to + (row * pitch) as u64, pattern, width, stream))
}

driver_api! {
    ["cuMemsetD8" 3020 / cuMemsetD8_v2_ptds] fn cuMemsetD8_v2(to: u64, value: u8, count: usize) {
        linear(to, &value.to_ne_bytes(), count, 0)
    }
    ["cuMemsetD8Async" 3020 / cuMemsetD8Async_ptsz] fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: usize) {
        linear(to, &value.to_ne_bytes(), count, stream)
    }
    ["cuMemsetD2D8" 3020 / cuMemsetD2D8_v2_ptds] fn cuMemsetD2D8_v2(to: u64, pitch: usize, value: u8, width: usize, height: usize) {
        pitched(to, pitch, &value.to_ne_bytes(), width, height, 0)
    }
    ["cuMemsetD2D8Async" 3020 / cuMemsetD2D8Async_ptsz] fn cuMemsetD2D8Async(to: u64, pitch: usize, value: u8, width: usize, height: usize, stream: usize) {
        pitched(to, pitch, &value.to_ne_bytes(), width, height, stream)
    }
    ["cuMemsetD16" 3020 / cuMemsetD16_v2_ptds] fn cuMemsetD16_v2(to: u64, value: u16, count: usize) {
        linear(to, &value.to_ne_bytes(), count, 0)
    }
    ["cuMemsetD16Async" 3020 / cuMemsetD16Async_ptsz] fn cuMemsetD16Async(to: u64, value: u16, count: usize, stream: usize) {
        linear(to, &value.to_ne_bytes(), count, stream)
    }
    ["cuMemsetD2D16" 3020 / cuMemsetD2D16_v2_ptds] fn cuMemsetD2D16_v2(to: u64, pitch: usize, value: u16, width: usize, height: usize) {
        pitched(to, pitch, &value.to_ne_bytes(), width, height, 0)
    }
    ["cuMemsetD2D16Async" 3020 / cuMemsetD2D16Async_ptsz] fn cuMemsetD2D16Async(to: u64, pitch: usize, value: u16, width: usize, height: usize, stream: usize) {
        pitched(to, pitch, &value.to_ne_bytes(), width, height, stream)
    }
    ["cuMemsetD32" 3020 / cuMemsetD32_v2_ptds] fn cuMemsetD32_v2(to: u64, value: u32, count: usize) {
        linear(to, &value.to_ne_bytes(), count, 0)
    }
    ["cuMemsetD32Async" 3020 / cuMemsetD32Async_ptsz] fn cuMemsetD32Async(to: u64, value: u32, count: usize, stream: usize) {
        linear(to, &value.to_ne_bytes(), count, stream)
    }
    ["cuMemsetD2D32" 3020 / cuMemsetD2D32_v2_ptds] fn cuMemsetD2D32_v2(to: u64, pitch: usize, value: u32, width: usize, height: usize) {
        pitched(to, pitch, &value.to_ne_bytes(), width, height, 0)
    }
    ["cuMemsetD2D32Async" 3020 / cuMemsetD2D32Async_ptsz] fn cuMemsetD2D32Async(to: u64, pitch: usize, value: u32, width: usize, height: usize, stream: usize) {
        pitched(to, pitch, &value.to_ne_bytes(), width, height, stream)
    }
}
