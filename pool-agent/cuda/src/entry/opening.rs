//! `cuMemSetAccess`: the last moment before mapped memory can be used, and the first at which what it is for can be seen.
//!
//! PyTorch's expandable segments take handles of 20 MiB, as many as a request needs, map them one behind the other and open them at once. While
//! a model loads, such handles are the model, and those that no longer fit beside the reserve go to donors; the workspace of the first
//! product comes in them as well, and what it leaves of its last handle is where the first inputs go. So on an H200 products of local
//! weights ran at 0.02 of native. The burst tells the two apart: one that is not large is brought to the primary, as the same
//! request of the default allocator would have been. Nobody can have touched the memory yet, so nothing is copied and nobody waits.

use crate::abi::{AccessDesc, AllocationProp, Code, DevicePtr, LOCATION_DEVICE, SUCCESS};
use crate::compound::Part;
use crate::entry::vmm::{local_part, release_one, size, unmap_one};
use crate::pool::{self, Pool};
use crate::{capture, hints, log, real};

pub(crate) unsafe fn set_access(
    real: unsafe extern "C" fn(DevicePtr, usize, *const AccessDesc, usize) -> Code,
    at: DevicePtr,
    bytes: usize,
    access: *const AccessDesc,
    count: usize,
) -> Code {
    // SAFETY: the descriptors are read only when there are some; everything is passed on.
    unsafe {
        if !access.is_null()
            && count > 0
            && (*access).location.kind == LOCATION_DEVICE
            && (*access).location.id == 0
            && let Some(pool) = pool::current()
        {
            opened(pool, at, bytes as u64);
        }
        real(at, bytes, access, count)
    }
}

fn opened(pool: &Pool, at: DevicePtr, bytes: u64) {
    if !pool.rules.hinted(hints::scope()).watched || !pool.frozen().spills() || capture::forbids_mapping() {
        return;
    }
    let Some(burst) = pool.handles().opening(at, bytes) else { return };
    if !pool.growth().opens_small(bytes, pool.rules) {
        return;
    }
    let mut far = burst.into_iter().filter(|(_, memory)| memory.lease.is_some());
    // Where the primary has no room for one, it has none for the next.
    while far.next().is_some_and(|(place, _)| bring_near(pool, place, bytes)) {}
}

/// Memory of the primary takes the place of a donor's chunk. False: there is none, or the chunk is known elsewhere.
fn bring_near(pool: &Pool, at: DevicePtr, burst_bytes: u64) -> bool {
    let exchangeable = pool.compounds().exchangeable(at);
    let Some((number, old)) = exchangeable else { return false };
    let Some(wanted) = pool.compounds().properties(number) else { return false };
    if pool.cards().local_bytes < old.bytes {
        return false;
    }
    let mut handle = 0;
    let to = &raw mut handle;
    let made = local_part(pool, to, old.bytes, &wanted, || create(to, old.bytes, &wanted));
    if made != SUCCESS {
        return false;
    }
    let map = |handle| {
        // SAFETY: a range that has just been unmapped; the handle is ours and of this size.
        let code = unsafe { real::mem_map(at, size(old.bytes), 0, handle, 0) };
        if code == SUCCESS {
            pool.handles().mapped(at, old.bytes, handle);
        }
        code
    };
    if unmap_one(pool, at, old.bytes) != SUCCESS {
        release_one(pool, handle);
        return false;
    }
    if map(handle) != SUCCESS {
        release_one(pool, handle);
        if map(old.handle) != SUCCESS {
            log::warn("cuda: a mapping was lost while its memory was exchanged");
        }
        return false;
    }
    pool.handles().belongs_to_burst(handle, burst_bytes);
    // Who gave the number back meanwhile gave back the chunk that was behind it; the mapping alone holds the new memory then.
    let exchanged = pool.compounds().exchanged(number, old, Part { handle, bytes: old.bytes });
    release_one(pool, if exchanged { old.handle } else { handle });
    true
}

fn create(handle: *mut u64, bytes: u64, prop: &AllocationProp) -> Code {
    // SAFETY: both pointers outlive the call.
    unsafe { real::mem_create(handle, size(bytes), std::ptr::from_ref(prop), 0) }
}
