//! What is known about an address. A stitched range answers as the hardware driver does: one segment from
//! `cuMemGetAddressRange`, the whole reservation from the range attributes.

use std::ffi::c_void;

use crate::address_space::BlockKind;
use crate::code::{Code, Outcome};
use crate::context::current;
use crate::driver::{Driver, driver};
use crate::entry::{offer, put};
use crate::memory::Place;

const CONTEXT: i32 = 1;
const MEMORY_TYPE: i32 = 2;
const DEVICE_POINTER: i32 = 3;
const HOST_POINTER: i32 = 4;
const P2P_TOKENS: i32 = 5;
const SYNC_MEMOPS: i32 = 6;
const BUFFER_ID: i32 = 7;
const IS_MANAGED: i32 = 8;
const DEVICE_ORDINAL: i32 = 9;
const IS_LEGACY_IPC_CAPABLE: i32 = 10;
const RANGE_START: i32 = 11;
const RANGE_SIZE: i32 = 12;
const MAPPED: i32 = 13;
const ALLOWED_HANDLE_TYPES: i32 = 14;
const IS_GPU_DIRECT_RDMA_CAPABLE: i32 = 15;
const ACCESS_FLAGS: i32 = 16;
const MEMPOOL_HANDLE: i32 = 17;
const MAPPING_SIZE: i32 = 18;
const MAPPING_BASE: i32 = 19;
const MEMORY_BLOCK_ID: i32 = 20;

const TYPE_HOST: u32 = 1;
const TYPE_DEVICE: u32 = 2;

/// One address, as the attributes see it.
#[derive(Debug, Clone, Copy)]
struct Facts {
    memory_type: u32,
    context: usize,
    ordinal: i32,
    buffer_id: u64,
    /// The block, mapping or page-locked range.
    start: u64,
    bytes: u64,
    /// The reservation, where there is one.
    range_start: u64,
    range_bytes: u64,
    stitched: bool,
    managed: bool,
    pool: usize,
    handle_types: u64,
    rdma: u8,
}

fn facts(driver: &Driver, address: u64) -> Option<Facts> {
    let space = driver.space();
    if let Some((start, block)) = space.block(address) {
        let pool = if let BlockKind::Pooled(pool) = block.kind { pool } else { 0 };
        return Some(Facts {
            memory_type: TYPE_DEVICE,
            context: block.context,
            ordinal: driver.ordinal(block.card).unwrap_or(0),
            buffer_id: block.id,
            start,
            bytes: block.bytes,
            range_start: start,
            range_bytes: block.bytes,
            stitched: false,
            managed: block.kind == BlockKind::Managed,
            pool,
            handle_types: 0,
            rdma: 0,
        });
    }
    if let Some((start, mapping)) = space.mapping(address) {
        let (range_start, range_bytes) = space.reservation(address).unwrap_or((start, mapping.bytes));
        // Memory of a card that the process does not see answers with the card it was mapped for.
        let seen = match mapping.memory.place {
            Place::Card(card) => driver.ordinal(card),
            Place::Host => None,
        };
        let granted = || driver.visible.iter().position(|card| mapping.access[*card] != 0);
        let ordinal = seen.or_else(|| granted().and_then(|at| i32::try_from(at).ok()));
        let memory_type = if mapping.memory.place == Place::Host { TYPE_HOST } else { TYPE_DEVICE };
        return Some(Facts {
            memory_type,
            context: 0,
            ordinal: ordinal.unwrap_or(0),
            buffer_id: mapping.id,
            start,
            bytes: mapping.bytes,
            range_start,
            range_bytes,
            stitched: true,
            managed: false,
            pool: 0,
            handle_types: u64::try_from(mapping.memory.handle_types).unwrap_or(0),
            rdma: mapping.memory.rdma,
        });
    }
    let (start, pinned) = space.pinned(address)?;
    Some(Facts {
        memory_type: TYPE_HOST,
        context: 0,
        ordinal: 0,
        buffer_id: start,
        start,
        bytes: pinned.bytes,
        range_start: start,
        range_bytes: pinned.bytes,
        stitched: false,
        managed: false,
        pool: 0,
        handle_types: 0,
        rdma: 0,
    })
}

/// Writes one attribute at its own width.
unsafe fn answer(to: *mut c_void, attribute: i32, address: u64, facts: &Facts) -> Outcome {
    let device = facts.memory_type == TYPE_DEVICE;
    // SAFETY: the caller gives room for the type that the attribute's documentation names.
    unsafe {
        match attribute {
            CONTEXT => put(to.cast(), facts.context),
            MEMORY_TYPE => put(to.cast(), facts.memory_type),
            HOST_POINTER if device && !facts.managed => Err(Code::INVALID_VALUE),
            DEVICE_POINTER | HOST_POINTER => put(to.cast(), address),
            SYNC_MEMOPS | MAPPED => put(to.cast::<u32>(), u32::from(attribute == MAPPED)),
            BUFFER_ID | MEMORY_BLOCK_ID => put(to.cast(), facts.buffer_id),
            IS_MANAGED => put(to.cast::<u32>(), u32::from(facts.managed)),
            DEVICE_ORDINAL => put(to.cast(), facts.ordinal),
            IS_LEGACY_IPC_CAPABLE => put(
                to.cast::<u32>(),
                u32::from(device && !facts.stitched && facts.pool == 0 && !facts.managed),
            ),
            RANGE_START => put(to.cast(), facts.range_start),
            RANGE_SIZE => put(to.cast(), facts.range_bytes),
            ALLOWED_HANDLE_TYPES => put(to.cast(), facts.handle_types),
            IS_GPU_DIRECT_RDMA_CAPABLE => put(to.cast::<u32>(), facts.rdma.into()),
            ACCESS_FLAGS => put(to.cast::<u32>(), 3),
            MEMPOOL_HANDLE => put(to.cast(), facts.pool),
            MAPPING_SIZE => put(to.cast(), facts.bytes),
            MAPPING_BASE => put(to.cast(), facts.start),
            _ => Err(Code::INVALID_VALUE),
        }
    }
}

driver_api! {
    ["cuPointerGetAttribute" 4000] fn cuPointerGetAttribute(to: *mut c_void, attribute: i32, address: u64) {
        let driver = driver()?;
        let facts = facts(driver, address).ok_or(Code::INVALID_VALUE)?;
        answer(to, attribute, address, &facts)
    }
    // An unknown address is no error here: its attributes are zero.
    ["cuPointerGetAttributes" 7000] fn cuPointerGetAttributes(
        count: u32, attributes: *const i32, to: *mut *mut c_void, address: u64,
    ) {
        let driver = driver()?;
        if attributes.is_null() || to.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let count = count as usize;
        if count == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let (attributes, to) = (std::slice::from_raw_parts(attributes, count), std::slice::from_raw_parts(to, count));
        if to.iter().any(|to| to.is_null()) {
            return Err(Code::INVALID_VALUE);
        }
        let facts = facts(driver, address);
        for (attribute, to) in attributes.iter().zip(to) {
            match facts {
                Some(facts) => { let _left_alone = answer(*to, *attribute, address, &facts); }
                None if *attribute == P2P_TOKENS => return Err(Code::INVALID_VALUE),
                None if matches!(*attribute, RANGE_START | RANGE_SIZE) => {}
                None if *attribute == DEVICE_ORDINAL => offer(to.cast::<i32>(), -2),
                None if matches!(*attribute, MEMORY_TYPE | IS_MANAGED | IS_LEGACY_IPC_CAPABLE | MAPPED) => {
                    offer(to.cast::<u32>(), 0);
                }
                None => offer(to.cast::<u64>(), 0),
            }
        }
        Ok(())
    }
    ["cuPointerSetAttribute" 6000] fn cuPointerSetAttribute(value: *const c_void, attribute: i32, address: u64) {
        let driver = driver()?;
        let facts = facts(driver, address).ok_or(Code::INVALID_VALUE)?;
        if value.is_null() || attribute != SYNC_MEMOPS {
            return Err(Code::INVALID_VALUE);
        }
        if facts.stitched { Err(Code::NOT_SUPPORTED) } else { Ok(()) }
    }
    ["cuMemGetAddressRange" 3020] fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, address: u64) {
        offer(base, 0);
        offer(bytes, 0);
        let driver = driver()?;
        current(driver)?;
        let facts = facts(driver, address).filter(|facts| facts.memory_type == TYPE_DEVICE).ok_or(Code::NOT_FOUND)?;
        let whole = driver.attached.host().whole_address_ranges();
        let (start, length) =
            if whole { (facts.range_start, facts.range_bytes) } else { (facts.start, facts.bytes) };
        offer(base, start);
        offer(bytes, usize::try_from(length).map_err(|_| Code::UNKNOWN)?);
        Ok(())
    }
    ["cuMemGetAddressRange" 2000] fn cuMemGetAddressRange(base: *mut u32, bytes: *mut u32, _address: u32) {
        offer(base, 0);
        offer(bytes, 0);
        driver()?;
        Err(Code::INVALID_CONTEXT)
    }
}

#[cfg(test)]
mod tests {
    use cudarc::driver::sys::CUpointer_attribute_enum as header;

    use super::*;

    #[test]
    fn v14_attribute_numbers_are_the_headers() {
        let pairs = [
            (CONTEXT, header::CU_POINTER_ATTRIBUTE_CONTEXT),
            (MEMORY_TYPE, header::CU_POINTER_ATTRIBUTE_MEMORY_TYPE),
            (DEVICE_POINTER, header::CU_POINTER_ATTRIBUTE_DEVICE_POINTER),
            (HOST_POINTER, header::CU_POINTER_ATTRIBUTE_HOST_POINTER),
            (P2P_TOKENS, header::CU_POINTER_ATTRIBUTE_P2P_TOKENS),
            (SYNC_MEMOPS, header::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS),
            (BUFFER_ID, header::CU_POINTER_ATTRIBUTE_BUFFER_ID),
            (IS_MANAGED, header::CU_POINTER_ATTRIBUTE_IS_MANAGED),
            (DEVICE_ORDINAL, header::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL),
            (IS_LEGACY_IPC_CAPABLE, header::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE),
            (RANGE_START, header::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR),
            (RANGE_SIZE, header::CU_POINTER_ATTRIBUTE_RANGE_SIZE),
            (MAPPED, header::CU_POINTER_ATTRIBUTE_MAPPED),
            (ALLOWED_HANDLE_TYPES, header::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES),
            (IS_GPU_DIRECT_RDMA_CAPABLE, header::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE),
            (ACCESS_FLAGS, header::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS),
            (MEMPOOL_HANDLE, header::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE),
            (MAPPING_SIZE, header::CU_POINTER_ATTRIBUTE_MAPPING_SIZE),
            (MAPPING_BASE, header::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR),
            (MEMORY_BLOCK_ID, header::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID),
        ];
        for (ours, theirs) in pairs {
            assert_eq!(ours, theirs as i32, "{theirs:?}");
        }
    }
}
