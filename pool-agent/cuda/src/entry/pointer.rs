//! What a pointer says of itself. Of a stitched block the driver knows the segments; the tenant allocated the whole.
//!
//! Driver 580 on a stitched range: the address range and the buffer id are the segment's, `RANGE_START` and `RANGE_SIZE` the
//! reservation's; setting `SYNC_MEMOPS` gives 801, an IPC handle 1 (here: a token, see [`crate::ipc`]); a DMA-BUF descriptor is
//! granted even across segments of one card.

use std::ffi::c_void;
use std::sync::Arc;

use crate::abi::{
    ATTRIBUTE_ALLOWED_HANDLE_TYPES, ATTRIBUTE_BUFFER_ID, ATTRIBUTE_CONTEXT, ATTRIBUTE_DEVICE_ORDINAL,
    ATTRIBUTE_HOST_POINTER, ATTRIBUTE_LEGACY_IPC, ATTRIBUTE_MAPPING_BASE, ATTRIBUTE_MAPPING_SIZE,
    ATTRIBUTE_MEMORY_BLOCK_ID, ATTRIBUTE_MEMORY_TYPE, ATTRIBUTE_P2P_TOKENS, ATTRIBUTE_RANGE_SIZE,
    ATTRIBUTE_RANGE_START, Code, DevicePtr, INVALID_VALUE, MEMORY_TYPE_DEVICE, NOT_SUPPORTED, SUCCESS,
};
use crate::blocks::{Sharing, Spilled};
use crate::compound::Around;
use crate::pool;

pub(super) fn spilled(at: DevicePtr) -> Option<Arc<Spilled>> {
    pool::current()?.blocks().containing(at)
}

/// What the driver knows only parts of.
enum Whole {
    Block(Arc<Spilled>),
    /// A handle over several cards, where it is mapped.
    Handle(Around),
}

impl Whole {
    fn around(at: DevicePtr) -> Option<Self> {
        let handle = || pool::current()?.compounds().around(at).filter(|around| around.spread);
        spilled(at).map(Self::Block).or_else(|| Some(Self::Handle(handle()?)))
    }

    fn extent(&self) -> (DevicePtr, u64) {
        match self {
            Self::Block(block) => (block.start, block.bytes),
            Self::Handle(around) => (around.start, around.bytes),
        }
    }

    /// Corrects one attribute that the driver has just written.
    ///
    /// # Safety
    /// `data` is valid for the attribute's type.
    unsafe fn correct(&self, attribute: i32, data: *mut c_void) {
        match self {
            // SAFETY: the caller's promise.
            Self::Block(block) => unsafe { correct(block, attribute, data) },
            // SAFETY: as above.
            Self::Handle(around) => unsafe { correct_mapped(*around, attribute, data) },
        }
    }
}

pub(crate) unsafe fn range(
    real: unsafe extern "C" fn(*mut DevicePtr, *mut usize, DevicePtr) -> Code,
    base: *mut DevicePtr,
    bytes: *mut usize,
    at: DevicePtr,
) -> Code {
    // SAFETY: passed on; after a success each pointer is null or was written through.
    unsafe {
        let code = real(base, bytes, at);
        if code == SUCCESS
            && let Some((start, length)) = Whole::around(at).map(|whole| whole.extent())
        {
            if !base.is_null() {
                *base = start;
            }
            if !bytes.is_null() {
                *bytes = usize::try_from(length).unwrap_or(usize::MAX);
            }
        }
        code
    }
}

/// 32-bit addresses never lie in a stitched block.
pub(crate) unsafe fn range_v1(
    real: unsafe extern "C" fn(*mut u32, *mut u32, u32) -> Code,
    base: *mut u32,
    bytes: *mut u32,
    at: u32,
) -> Code {
    // SAFETY: passed on.
    unsafe { real(base, bytes, at) }
}

/// Corrects one attribute that the driver has just written.
///
/// # Safety
/// `data` is valid for the attribute's type.
unsafe fn correct(block: &Spilled, attribute: i32, data: *mut c_void) {
    // SAFETY: the caller's promise; types as in the driver's documentation of each attribute.
    unsafe {
        match attribute {
            ATTRIBUTE_CONTEXT => *data.cast::<usize>() = block.context,
            // A part on the host tier is device memory to the tenant, as the rest is.
            ATTRIBUTE_MEMORY_TYPE => *data.cast::<u32>() = MEMORY_TYPE_DEVICE,
            ATTRIBUTE_HOST_POINTER => *data.cast::<usize>() = 0,
            ATTRIBUTE_BUFFER_ID => *data.cast::<u64>() = block.id,
            ATTRIBUTE_DEVICE_ORDINAL => *data.cast::<i32>() = 0,
            ATTRIBUTE_LEGACY_IPC => *data.cast::<u8>() = u8::from(matches!(block.sharing, Sharing::Own(_))),
            ATTRIBUTE_RANGE_START => *data.cast::<DevicePtr>() = block.start,
            ATTRIBUTE_RANGE_SIZE => {
                *data.cast::<usize>() = usize::try_from(block.bytes).unwrap_or(usize::MAX);
            }
            _ => {}
        }
    }
}

/// The same for a handle over several cards. Its reservation is the tenant's own, so the driver's word on that stands; a descriptor of it
/// cannot be had.
///
/// # Safety
/// `data` is valid for the attribute's type.
unsafe fn correct_mapped(around: Around, attribute: i32, data: *mut c_void) {
    // SAFETY: the caller's promise; types as in the driver's documentation of each attribute.
    unsafe {
        match attribute {
            ATTRIBUTE_BUFFER_ID | ATTRIBUTE_MEMORY_BLOCK_ID => *data.cast::<u64>() = around.id,
            ATTRIBUTE_ALLOWED_HANDLE_TYPES => *data.cast::<u64>() = 0,
            ATTRIBUTE_MAPPING_BASE => *data.cast::<DevicePtr>() = around.start,
            ATTRIBUTE_MAPPING_SIZE => {
                *data.cast::<usize>() = usize::try_from(around.bytes).unwrap_or(usize::MAX);
            }
            _ => {}
        }
    }
}

pub(crate) unsafe fn attribute(
    real: unsafe extern "C" fn(*mut c_void, i32, DevicePtr) -> Code,
    data: *mut c_void,
    attribute: i32,
    at: DevicePtr,
) -> Code {
    // No one token stands for memory of several cards: callers take their fallback.
    let whole = if data.is_null() { None } else { Whole::around(at) };
    if attribute == ATTRIBUTE_P2P_TOKENS && whole.is_some() {
        return NOT_SUPPORTED;
    }
    // SAFETY: passed on; after a success the driver has written the attribute.
    unsafe {
        let code = real(data, attribute, at);
        if code == SUCCESS
            && let Some(whole) = whole
        {
            whole.correct(attribute, data);
            if attribute == ATTRIBUTE_HOST_POINTER {
                return INVALID_VALUE;
            }
        }
        code
    }
}

pub(crate) unsafe fn attributes(
    real: unsafe extern "C" fn(u32, *mut i32, *mut *mut c_void, DevicePtr) -> Code,
    count: u32,
    attributes: *mut i32,
    data: *mut *mut c_void,
    at: DevicePtr,
) -> Code {
    // SAFETY: passed on; after a success the driver has read `count` entries of both arrays and written through the second.
    unsafe {
        let code = real(count, attributes, data, at);
        if code == SUCCESS
            && !attributes.is_null()
            && !data.is_null()
            && let Some(whole) = Whole::around(at)
        {
            for entry in 0..count as usize {
                let to = *data.add(entry);
                if !to.is_null() {
                    whole.correct(*attributes.add(entry), to);
                }
            }
        }
        code
    }
}

/// The driver's answer stands: what mapped memory refuses (`SYNC_MEMOPS`), a stitched block refuses too.
pub(crate) unsafe fn set_attribute(
    real: unsafe extern "C" fn(*const c_void, i32, DevicePtr) -> Code,
    value: *const c_void,
    attribute: i32,
    at: DevicePtr,
) -> Code {
    // SAFETY: passed on.
    unsafe { real(value, attribute, at) }
}

/// The segments may lie on several cards, for which no one descriptor stands: callers take their fallback.
pub(crate) unsafe fn range_handle(
    real: unsafe extern "C" fn(*mut c_void, DevicePtr, usize, i32, u64) -> Code,
    handle: *mut c_void,
    at: DevicePtr,
    bytes: usize,
    kind: i32,
    flags: u64,
) -> Code {
    if !handle.is_null() && Whole::around(at).is_some() {
        return NOT_SUPPORTED;
    }
    // SAFETY: passed on.
    unsafe { real(handle, at, bytes, kind, flags) }
}
