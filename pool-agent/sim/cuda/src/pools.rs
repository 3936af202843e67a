//! Stream-ordered allocation. Work is host-synchronous, so a free takes effect at once. What is freed stays reserved up to the pool's
//! release threshold (0 unless set), is used again first, and goes back to the card when the pool is trimmed.

use std::collections::HashMap;

use crate::address_space::BlockKind;
use crate::code::{Code, Outcome};
use crate::context::current;
use crate::driver::{Driver, driver};
use crate::entry::{get, offer, put};
use crate::native::{allocate, free, fresh_id};
use crate::stream::{advance, clock};
use crate::vmm::{LOCATION_DEVICE, Location};

const ALLOCATION_NS: u64 = 1_500;

#[derive(Debug, Default)]
pub(crate) struct Pools {
    entries: HashMap<usize, Pool>,
    default_of_card: HashMap<usize, usize>,
    current_of_card: HashMap<usize, usize>,
}

#[derive(Debug)]
struct Pool {
    card: usize,
    used_bytes: u64,
    high_bytes: u64,
    /// Freed, and still the pool's.
    kept_bytes: u64,
    attributes: HashMap<i32, u64>,
}

/// `CUmemPoolProps`, the part that matters.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PoolProperties {
    kind: i32,
    handle_types: i32,
    location: Location,
}

impl Pools {
    fn enter(&mut self, card: usize) -> Result<usize, Code> {
        let id = usize::try_from(0x7f0_0000_0000 + fresh_id() * 0x100).map_err(|_| Code::UNKNOWN)?;
        self.entries.insert(
            id,
            Pool { card, used_bytes: 0, high_bytes: 0, kept_bytes: 0, attributes: HashMap::new() },
        );
        Ok(id)
    }

    fn default_pool(&mut self, card: usize) -> Result<usize, Code> {
        if let Some(id) = self.default_of_card.get(&card) {
            return Ok(*id);
        }
        let id = self.enter(card)?;
        self.default_of_card.insert(card, id);
        Ok(id)
    }

    fn current_pool(&mut self, card: usize) -> Result<usize, Code> {
        self.current_of_card.get(&card).copied().map_or_else(|| self.default_pool(card), Ok)
    }

    fn card(&self, pool: usize) -> Result<usize, Code> {
        self.entries.get(&pool).map(|pool| pool.card).ok_or(Code::INVALID_VALUE)
    }

    fn charge(&mut self, pool: usize, bytes: u64) {
        if let Some(pool) = self.entries.get_mut(&pool) {
            pool.used_bytes += bytes;
            pool.high_bytes = pool.high_bytes.max(pool.used_bytes);
        }
    }

    /// A block of the pool was freed. Returns the card and the bytes that the pool keeps of it.
    pub(crate) fn forget(&mut self, pool: usize, bytes: u64) -> Option<(usize, u64)> {
        let pool = self.entries.get_mut(&pool)?;
        pool.used_bytes = pool.used_bytes.saturating_sub(bytes);
        let threshold = pool.attributes.get(&RELEASE_THRESHOLD).copied().unwrap_or(0);
        let room = threshold.saturating_sub(pool.used_bytes + pool.kept_bytes);
        let kept = bytes.min(room);
        pool.kept_bytes += kept;
        Some((pool.card, kept))
    }

    /// What the pool meant to keep went to somebody else.
    pub(crate) fn lose(&mut self, pool: usize, bytes: u64) {
        if let Some(pool) = self.entries.get_mut(&pool) {
            pool.kept_bytes = pool.kept_bytes.saturating_sub(bytes);
        }
    }

    /// Takes up to `bytes` out of what the pool keeps: card and bytes.
    fn unkeep(&mut self, pool: usize, bytes: u64) -> Option<(usize, u64)> {
        let pool = self.entries.get_mut(&pool)?;
        let taken = pool.kept_bytes.min(bytes);
        pool.kept_bytes -= taken;
        Some((pool.card, taken))
    }
}

/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
const RELEASE_THRESHOLD: i32 = 4;

/// Bytes that the pool kept go back to the card.
fn give_back(driver: &Driver, pool: usize, bytes: u64) -> Outcome {
    let unkept = driver.pools().unkeep(pool, bytes);
    if let Some((card, bytes)) = unkept.filter(|(_, bytes)| *bytes > 0) {
        driver.state()?.discharge_native(driver.holder(), card, bytes);
    }
    Ok(())
}

fn take(driver: &Driver, pool: usize, bytes: usize, stream: usize) -> Result<u64, Code> {
    let here = current(driver)?;
    clock(driver, stream)?;
    let card = driver.pools().card(pool)?;
    if bytes == 0 {
        return Ok(0); // as driver 580 answers, unlike cuMemAlloc
    }
    let rounded = (bytes as u64).next_multiple_of(crate::native_arena::ALIGNMENT);
    give_back(driver, pool, rounded)?;
    let address = allocate(driver, card, here.id, bytes as u64, BlockKind::Pooled(pool))?;
    driver.pools().charge(pool, rounded);
    advance(driver, stream, ALLOCATION_NS)?;
    Ok(address)
}

fn pool_of_location(driver: &Driver, location: *const Location) -> Result<usize, Code> {
    // SAFETY: NULL or a parameter block, as the interface asks.
    let location = unsafe { get(location)? };
    if location.kind != LOCATION_DEVICE {
        return Err(Code::NOT_SUPPORTED);
    }
    driver.card(location.id)
}

fn attribute(pool: usize, attribute: i32) -> Result<u64, Code> {
    let driver = driver()?;
    let pools = driver.pools();
    let pool = pools.entries.get(&pool).ok_or(Code::INVALID_VALUE)?;
    match attribute {
        1..=3 => Ok(pool.attributes.get(&attribute).copied().unwrap_or(1)),
        4 => Ok(pool.attributes.get(&attribute).copied().unwrap_or(0)),
        5 => Ok(pool.used_bytes + pool.kept_bytes),
        7 => Ok(pool.used_bytes),
        6 | 8 => Ok(pool.high_bytes),
        _ => Err(Code::INVALID_VALUE),
    }
}

fn set_attribute(pool: usize, attribute: i32, value: u64) -> Outcome {
    let driver = driver()?;
    let mut pools = driver.pools();
    let pool = pools.entries.get_mut(&pool).ok_or(Code::INVALID_VALUE)?;
    match attribute {
        1..=4 => {
            pool.attributes.insert(attribute, value);
        }
        6 | 8 if value == 0 => pool.high_bytes = pool.used_bytes,
        _ => return Err(Code::INVALID_VALUE),
    }
    Ok(())
}

driver_api! {
    ["cuMemAllocAsync" 11020 / cuMemAllocAsync_ptsz] fn cuMemAllocAsync(
        address: *mut u64, bytes: usize, stream: usize,
    ) {
        offer(address, 0);
        let driver = driver()?;
        let here = current(driver)?;
        if address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let pool = driver.pools().current_pool(here.card)?;
        put(address, take(driver, pool, bytes, stream)?)
    }
    ["cuMemAllocFromPoolAsync" 11020 / cuMemAllocFromPoolAsync_ptsz] fn cuMemAllocFromPoolAsync(
        address: *mut u64, bytes: usize, pool: usize, stream: usize,
    ) {
        offer(address, 0);
        let driver = driver()?;
        if address.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        put(address, take(driver, pool, bytes, stream)?)
    }
    ["cuMemFreeAsync" 11020 / cuMemFreeAsync_ptsz] fn cuMemFreeAsync(address: u64, stream: usize) {
        let driver = driver()?;
        clock(driver, stream)?;
        if address == 0 {
            return Ok(());
        }
        free(driver, address)?;
        advance(driver, stream, ALLOCATION_NS)
    }
    ["cuMemPoolCreate" 11020] fn cuMemPoolCreate(pool: *mut usize, properties: *const PoolProperties) {
        let driver = driver()?;
        let properties = get(properties)?;
        if pool.is_null() || properties.kind != 1 {
            return Err(Code::INVALID_VALUE);
        }
        if properties.location.kind != LOCATION_DEVICE || properties.handle_types != 0 {
            return Err(Code::NOT_SUPPORTED);
        }
        let card = driver.card(properties.location.id).map_err(|_| Code::INVALID_VALUE)?;
        let id = driver.pools().enter(card)?;
        put(pool, id)
    }
    ["cuMemPoolDestroy" 11020] fn cuMemPoolDestroy(pool: usize) {
        let driver = driver()?;
        let mut pools = driver.pools();
        if pools.default_of_card.values().any(|default| *default == pool) {
            return Err(Code::INVALID_VALUE);
        }
        pools.current_of_card.retain(|_, current| *current != pool);
        let gone = pools.entries.remove(&pool).ok_or(Code::INVALID_VALUE)?;
        drop(pools);
        driver.state()?.discharge_native(driver.holder(), gone.card, gone.kept_bytes);
        Ok(())
    }
    ["cuMemPoolTrimTo" 11020] fn cuMemPoolTrimTo(pool: usize, keep: usize) {
        let driver = driver()?;
        let kept = driver.pools().entries.get(&pool).map(|pool| (pool.used_bytes, pool.kept_bytes));
        let (used, kept) = kept.ok_or(Code::INVALID_VALUE)?;
        give_back(driver, pool, (used + kept).saturating_sub(keep as u64).min(kept))
    }
    ["cuMemPoolSetAttribute" 11020] fn cuMemPoolSetAttribute(
        pool: usize, number: i32, value: *const std::ffi::c_void,
    ) {
        let value = if number <= 3 { u64::from(get(value.cast::<u32>())?) } else { get(value.cast::<u64>())? };
        set_attribute(pool, number, value)
    }
    ["cuMemPoolGetAttribute" 11020] fn cuMemPoolGetAttribute(pool: usize, number: i32, value: *mut std::ffi::c_void) {
        let answer = attribute(pool, number)?;
        if number <= 3 { put(value.cast::<u32>(), u32::from(answer != 0)) } else { put(value.cast::<u64>(), answer) }
    }
    ["cuMemPoolSetAccess" 11020] fn cuMemPoolSetAccess(
        pool: usize, _grants: *const crate::vmm_access::Grant, _count: usize,
    ) {
        driver()?.pools().card(pool).map(|_| ())
    }
    ["cuMemPoolGetAccess" 11020] fn cuMemPoolGetAccess(flags: *mut i32, pool: usize, location: *const Location) {
        let driver = driver()?;
        let (asked, own) = (pool_of_location(driver, location)?, driver.pools().card(pool)?);
        put(flags, if asked == own { 3 } else { 0 })
    }
    ["cuMemPoolExportToShareableHandle" 11020] fn cuMemPoolExportToShareableHandle(
        _shareable: *mut std::ffi::c_void, pool: usize, _kind: i32, _flags: u64,
    ) {
        driver()?.pools().card(pool)?;
        Err(Code::NOT_SUPPORTED)
    }
    ["cuDeviceGetDefaultMemPool" 11020] fn cuDeviceGetDefaultMemPool(pool: *mut usize, device: i32) {
        let driver = driver()?;
        let card = driver.card(device)?;
        let id = driver.pools().default_pool(card)?;
        put(pool, id)
    }
    ["cuDeviceGetMemPool" 11020] fn cuDeviceGetMemPool(pool: *mut usize, device: i32) {
        let driver = driver()?;
        let card = driver.card(device)?;
        let id = driver.pools().current_pool(card)?;
        put(pool, id)
    }
    ["cuDeviceSetMemPool" 11020] fn cuDeviceSetMemPool(device: i32, pool: usize) {
        let driver = driver()?;
        let card = driver.card(device)?;
        let mut pools = driver.pools();
        if pools.card(pool)? != card {
            return Err(Code::INVALID_DEVICE);
        }
        pools.current_of_card.insert(card, pool);
        Ok(())
    }
}
