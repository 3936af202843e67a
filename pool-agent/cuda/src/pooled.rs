//! What stream-ordered pools and graphs keep of the primary.
//!
//! A pool holds on to memory that was freed into it, up to its threshold, so what it costs is what it *reserves*: neither the sum of live
//! blocks nor their peak. The charge of each pool follows the driver's figure, read after every call that may change it and again
//! whenever the cap would refuse something; what a pool keeps for later is then taken from it first. Memory of graphs' own allocation
//! nodes is read the same way. Between two readings a pool may reserve its next slab of 32 MiB above the cap, never more.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::{GRAPH_RESERVED, Opaque, POOL_RESERVED, POOL_USED, SUCCESS};
use crate::pool::Pool;
use crate::real;

/// Stands for the memory of graphs among the pools.
const GRAPHS: usize = usize::MAX;

#[derive(Debug, Default)]
pub(crate) struct Pooled {
    /// By pool, as a number: bytes charged for it.
    charged: Mutex<HashMap<usize, u64>>,
}

fn figure(source: usize, attribute: i32) -> Option<u64> {
    let mut bytes = 0u64;
    // SAFETY: the attribute is a 64-bit number, and the out-pointer outlives the call.
    let code = unsafe { real::pool_attribute(source as Opaque, attribute, (&raw mut bytes).cast()) };
    (code == SUCCESS).then_some(bytes)
}

fn graphs() -> u64 {
    let mut bytes = 0u64;
    // SAFETY: as in `figure`.
    let code = unsafe { real::graph_attribute(0, GRAPH_RESERVED, (&raw mut bytes).cast()) };
    if code == SUCCESS { bytes } else { 0 }
}

/// Bytes that a pool has and does not use: an allocation takes them first.
pub(crate) fn spare(source: Opaque) -> u64 {
    let source = source as usize;
    figure(source, POOL_RESERVED).unwrap_or(0).saturating_sub(figure(source, POOL_USED).unwrap_or(0))
}

impl Pooled {
    fn charged(&self) -> MutexGuard<'_, HashMap<usize, u64>> {
        self.charged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A charge that was made before the driver was asked becomes the pool's.
    pub(crate) fn add(&self, source: Opaque, bytes: u64) {
        *self.charged().entry(source as usize).or_default() += bytes;
    }

    /// Brings the charge of one pool to what the driver says now. A pool that is gone reserves nothing.
    pub(crate) fn settle(&self, pool: &Pool, source: usize) {
        let reserved = if source == GRAPHS { graphs() } else { figure(source, POOL_RESERVED).unwrap_or(0) };
        let mut charged = self.charged();
        let before = charged.insert(source, reserved).unwrap_or(0);
        drop(charged);
        if reserved > before {
            pool.account.add_local(reserved - before, pool.link.pages());
        } else {
            pool.return_local(before - reserved);
        }
    }

    /// As [`Pooled::settle`], for every pool that was ever used, and graphs. False: there is none.
    pub(crate) fn settle_all(&self, pool: &Pool) -> bool {
        let sources: Vec<usize> = self.charged().keys().copied().collect();
        for &source in &sources {
            self.settle(pool, source);
        }
        !sources.is_empty()
    }

    /// Graphs may allocate from now on.
    pub(crate) fn watch_graphs(&self) {
        self.charged().entry(GRAPHS).or_default();
    }

    /// Takes back what pools keep unused. False: nothing was kept.
    pub(crate) fn trim_all(&self, pool: &Pool) -> bool {
        let before = pool.account.local_bytes();
        let sources: Vec<usize> = self.charged().keys().copied().collect();
        for source in sources {
            // SAFETY: a pool that the driver handed out; it refuses one that is gone.
            unsafe {
                if source == GRAPHS { real::graph_trim(0) } else { real::pool_trim(source as Opaque, 0) }
            };
        }
        self.settle_all(pool);
        pool.account.local_bytes() < before
    }
}
