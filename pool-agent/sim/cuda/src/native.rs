//! `cuMemAlloc` and its kin: memory of the current context's card that belongs to this process alone.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::address_space::{Block, BlockKind};
use crate::code::Code;
use crate::context::current;
use crate::driver::{Driver, driver};
use crate::entry::{offer, put};
use crate::memory::{SOIL, delay_allocation, with_room};
use crate::native_arena::ALIGNMENT;

const PITCH_ALIGNMENT: u64 = 512;

/// Ids of blocks, mappings and everything else that must never be seen twice in a process.
pub(crate) fn fresh_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(crate) fn allocate(
    driver: &Driver,
    card: usize,
    context: usize,
    bytes: u64,
    kind: BlockKind,
) -> Result<u64, Code> {
    if bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    if bytes > driver.machine().gpus[card].memory_bytes {
        return Err(Code::OUT_OF_MEMORY);
    }
    delay_allocation(driver, card)?;
    let charged = bytes.next_multiple_of(ALIGNMENT);
    let dirty = with_room(driver, |state| {
        state.charge_native(driver.holder(), card, charged)?;
        Ok(state.take_dirt(card, charged))
    })?;
    let card_bytes = driver.machine().gpus[card].memory_bytes;
    let placed = driver.arenas().of(card, card_bytes).and_then(|arena| arena.place(charged));
    let address = match placed {
        Ok(address) => address,
        Err(code) => {
            driver.state()?.discharge_native(driver.holder(), card, charged);
            return Err(code);
        }
    };
    if dirty {
        let length = SOIL.len().min(usize::try_from(bytes).unwrap_or(0));
        // SAFETY: the block was just placed, is at least this long, and nobody else knows it yet.
        unsafe { std::ptr::copy_nonoverlapping(SOIL.as_ptr(), address as *mut u8, length) };
    }
    let block = Block { bytes, charged, card, context, kind, id: fresh_id() };
    driver.space().blocks.insert(address, block);
    Ok(address)
}

/// Frees a block by its start; `wanted` says which kinds the caller frees.
pub(crate) fn free(driver: &Driver, address: u64) -> Result<Block, Code> {
    let block = {
        let mut space = driver.space();
        match space.blocks.get(&address) {
            Some(block) if block.kind != BlockKind::Opened => space.blocks.remove(&address),
            _ => None,
        }
    };
    let block = block.ok_or(Code::INVALID_VALUE)?;
    give_back(driver, address, &block)?;
    Ok(block)
}

fn give_back(driver: &Driver, address: u64, block: &Block) -> Result<(), Code> {
    let card_bytes = driver.machine().gpus[block.card].memory_bytes;
    driver.arenas().of(block.card, card_bytes)?.take_back(address, block.charged);
    driver.state()?.discharge_native(driver.holder(), block.card, block.charged);
    if let BlockKind::Pooled(pool) = block.kind {
        let kept = driver.pools().forget(pool, block.charged);
        if let Some((card, kept)) = kept.filter(|(_, kept)| *kept > 0) {
            // Just given back, so there is room unless another process was faster.
            let charged = driver.state()?.charge_native(driver.holder(), card, kept);
            if charged.is_err() {
                driver.pools().lose(pool, kept);
            }
        }
    }
    Ok(())
}

/// Frees everything that a context allocated, when it is destroyed.
pub(crate) fn free_context(driver: &Driver, context: usize) {
    let addresses: Vec<u64> = {
        let space = driver.space();
        space.blocks.iter().filter(|(_, block)| block.context == context).map(|(start, _)| *start).collect()
    };
    for address in addresses {
        // An opened block of another process only loses its entry.
        if free(driver, address).is_err() {
            driver.space().blocks.remove(&address);
        }
    }
}

fn allocate_here(bytes: u64, kind: BlockKind) -> Result<u64, Code> {
    let driver = driver()?;
    let context = current(driver)?;
    crate::capture::permit()?;
    allocate(driver, context.card, context.id, bytes, kind)
}

fn memory_info() -> Result<(u64, u64), Code> {
    let driver = driver()?;
    let context = current(driver)?;
    let state = driver.attached.swept_lately().map_err(|_| Code::UNKNOWN)?;
    Ok((state.free_bytes(context.card), driver.machine().gpus[context.card].memory_bytes))
}

driver_api! {
    ["cuMemAlloc" 3020] fn cuMemAlloc_v2(pointer: *mut u64, bytes: usize) {
        // Out-parameters are zeroed before anything is refused, as driver 580 does it.
        offer(pointer, 0);
        if pointer.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        put(pointer, allocate_here(bytes as u64, BlockKind::Plain)?)
    }
    // The first forms want a context of the first form: on any other, driver 580 says that there is none.
    ["cuMemAlloc" 2000] fn cuMemAlloc(pointer: *mut u32, _bytes: u32) {
        offer(pointer, 0);
        driver()?;
        Err(Code::INVALID_CONTEXT)
    }
    ["cuMemAllocPitch" 3020] fn cuMemAllocPitch_v2(
        pointer: *mut u64, pitch: *mut usize, width: usize, height: usize, element: u32,
    ) {
        offer(pointer, 0);
        offer(pitch, 0);
        if pointer.is_null() || pitch.is_null() || !matches!(element, 4 | 8 | 16) {
            return Err(Code::INVALID_VALUE);
        }
        let row = (width as u64).next_multiple_of(PITCH_ALIGNMENT);
        let bytes = row.checked_mul(height as u64).ok_or(Code::INVALID_VALUE)?;
        put(pointer, allocate_here(bytes, BlockKind::Plain)?)?;
        put(pitch, usize::try_from(row).map_err(|_| Code::INVALID_VALUE)?)
    }
    ["cuMemAllocManaged" 6000] fn cuMemAllocManaged(pointer: *mut u64, bytes: usize, flags: u32) {
        offer(pointer, 0);
        if pointer.is_null() || !matches!(flags, 1 | 2) {
            return Err(Code::INVALID_VALUE);
        }
        put(pointer, allocate_here(bytes as u64, BlockKind::Managed)?)
    }
    ["cuMemFree" 3020] fn cuMemFree_v2(pointer: u64) {
        let driver = driver()?;
        if pointer == 0 {
            return Ok(());
        }
        crate::capture::permit()?;
        free(driver, pointer).map(|_| ())
    }
    ["cuMemFree" 2000] fn cuMemFree(_pointer: u32) {
        driver()?;
        Err(Code::INVALID_CONTEXT)
    }
    ["cuMemGetInfo" 3020] fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        offer(free, 0);
        offer(total, 0);
        let (free_bytes, total_bytes) = memory_info()?;
        offer(free, usize::try_from(free_bytes).unwrap_or(usize::MAX));
        offer(total, usize::try_from(total_bytes).unwrap_or(usize::MAX));
        Ok(())
    }
    ["cuMemGetInfo" 2000] fn cuMemGetInfo(free: *mut u32, total: *mut u32) {
        offer(free, 0);
        offer(total, 0);
        driver()?;
        Err(Code::INVALID_CONTEXT)
    }
}
