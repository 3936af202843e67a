//! What this process has allocated through the stand-in, by address.
//!
//! Spilled blocks are found by any address inside them: the driver sees only their segments, the tenant only the whole. Native
//! ones are remembered for their size, so that freeing them ends their charge.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::abi::{DevicePtr, Handle};
use crate::hints::Hint;

/// A mapped piece of a spilled block.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) handle: Handle,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    pub(crate) holding: Holding,
}

/// Who pays for a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holding {
    /// This process, out of the primary.
    Local,
    /// This process, by the broker's number for a chunk of a donor (by its index).
    Lease { lease: u64, donor: usize },
    /// Another process of the pool, whose block this one has opened.
    Foreign,
}

/// One allocation over several cards.
#[derive(Debug)]
pub(crate) struct Spilled {
    pub(crate) start: DevicePtr,
    /// What the tenant asked for.
    pub(crate) bytes: u64,
    /// What is reserved and mapped.
    pub(crate) mapped_bytes: u64,
    pub(crate) pieces: Vec<Piece>,
    /// The context that owns it, as a number; 0 when there was none.
    pub(crate) context: usize,
    /// Unique in the process, apart from the driver's own buffer ids.
    pub(crate) id: u64,
    pub(crate) sharing: Sharing,
    pub(crate) made_at_ms: u64,
    /// The code of a [`Hint`].
    pub(crate) hint: AtomicI32,
}

impl Spilled {
    pub(crate) fn hint(&self) -> Hint {
        Hint::from_code(self.hint.load(Ordering::Relaxed)).unwrap_or_default()
    }
}

/// A block between processes.
#[derive(Debug)]
pub(crate) enum Sharing {
    /// Ours; the number under which the others may open it, or 0.
    Own(AtomicU64),
    /// Opened from another process, under its number.
    Opened(u64),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Native {
    /// Charged for it: nothing when it came out of a pool.
    pub(crate) bytes: u64,
    pub(crate) context: usize,
    /// The stream-ordered pool that it came out of, as a number; 0 when it did not.
    pub(crate) source: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Blocks {
    spilled: BTreeMap<DevicePtr, Arc<Spilled>>,
    native: HashMap<DevicePtr, Native>,
    /// Blocks of other processes: by number, where they are and how often they were opened.
    opened: HashMap<u64, (DevicePtr, u32)>,
}

/// What lives at an address that the tenant wants to free.
#[derive(Debug)]
pub(crate) enum Found {
    Spilled(Arc<Spilled>),
    Native(Native),
    /// Inside a spilled block but not its start: no allocation.
    Interior,
    Unknown,
}

/// What closing an opened block comes to.
#[derive(Debug)]
pub(crate) enum Closed {
    /// It was opened more often than closed.
    InUse,
    Last(Arc<Spilled>),
    /// Nothing was opened there.
    Unknown,
}

impl Blocks {
    pub(crate) fn add_spilled(&mut self, block: Arc<Spilled>) {
        self.spilled.insert(block.start, block);
    }

    pub(crate) fn add_native(&mut self, at: DevicePtr, block: Native) {
        self.native.insert(at, block);
    }

    pub(crate) fn is_native(&self, at: DevicePtr) -> bool {
        self.native.contains_key(&at)
    }

    pub(crate) fn native_bytes(&self, at: DevicePtr) -> Option<u64> {
        self.native.get(&at).map(|native| native.bytes)
    }

    /// Every stitched block, by address.
    pub(crate) fn all_spilled(&self) -> Vec<Arc<Spilled>> {
        self.spilled.values().map(Arc::clone).collect()
    }

    /// The spilled block that `at` lies in.
    pub(crate) fn containing(&self, at: DevicePtr) -> Option<Arc<Spilled>> {
        let (_, block) = self.spilled.range(..=at).next_back()?;
        (at - block.start < block.mapped_bytes).then(|| Arc::clone(block))
    }

    /// Takes the block at `at` out: from now on its address may be given out again.
    pub(crate) fn take(&mut self, at: DevicePtr) -> Found {
        // An opened block is closed, not freed.
        if self.spilled.get(&at).is_some_and(|block| matches!(block.sharing, Sharing::Own(_))) {
            return self.spilled.remove(&at).map_or(Found::Unknown, Found::Spilled);
        }
        if let Some(native) = self.native.remove(&at) {
            return Found::Native(native);
        }
        if self.containing(at).is_some() { Found::Interior } else { Found::Unknown }
    }

    /// One more use of the opened block `number`; its address, if it is open already.
    pub(crate) fn open_again(&mut self, number: u64) -> Option<DevicePtr> {
        let (start, uses) = self.opened.get_mut(&number)?;
        *uses += 1;
        Some(*start)
    }

    /// Another process's block has been mapped. The block comes back when another thread was first.
    pub(crate) fn add_opened(&mut self, number: u64, block: Arc<Spilled>) -> Result<(), Arc<Spilled>> {
        if self.opened.contains_key(&number) {
            return Err(block);
        }
        self.opened.insert(number, (block.start, 1));
        self.add_spilled(block);
        Ok(())
    }

    /// One use less of the block opened at `at`.
    pub(crate) fn close(&mut self, at: DevicePtr) -> Closed {
        let opened = self.spilled.get(&at).map(|block| &block.sharing);
        let Some(&Sharing::Opened(number)) = opened else { return Closed::Unknown };
        let Some((_, uses)) = self.opened.get_mut(&number) else { return Closed::Unknown };
        *uses -= 1;
        if *uses > 0 {
            return Closed::InUse;
        }
        self.opened.remove(&number);
        self.spilled.remove(&at).map_or(Closed::Unknown, Closed::Last)
    }

    /// Takes out everything that belonged to a context that is gone: spilled blocks, and the bytes of native ones.
    pub(crate) fn take_of_context(&mut self, context: usize) -> (Vec<Arc<Spilled>>, u64) {
        let of_context = |block: &Arc<Spilled>| block.context == context;
        let starts: Vec<DevicePtr> =
            self.spilled.values().filter(|block| of_context(block)).map(|block| block.start).collect();
        let spilled: Vec<Arc<Spilled>> =
            starts.iter().filter_map(|start| self.spilled.remove(start)).collect();
        self.opened.retain(|_, (at, _)| !starts.contains(at));
        let mut native_bytes = 0;
        self.native.retain(|_, native| {
            if native.context == context {
                native_bytes += native.bytes;
            }
            native.context != context
        });
        (spilled, native_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(start: u64, bytes: u64, context: usize) -> Arc<Spilled> {
        shared_block(start, bytes, context, Sharing::Own(AtomicU64::new(0)))
    }

    fn shared_block(start: u64, bytes: u64, context: usize, sharing: Sharing) -> Arc<Spilled> {
        Arc::new(Spilled {
            start,
            bytes,
            mapped_bytes: bytes,
            pieces: Vec::new(),
            context,
            id: start,
            sharing,
            made_at_ms: 0,
            hint: AtomicI32::new(0),
        })
    }

    #[test]
    fn an_opened_block_is_counted_and_closed_and_never_freed() {
        let mut blocks = Blocks::default();
        let theirs = || shared_block(100, 50, 1, Sharing::Opened(7));
        assert_eq!(blocks.open_again(7), None);
        assert!(blocks.add_opened(7, theirs()).is_ok());
        assert!(blocks.add_opened(7, theirs()).is_err(), "another thread was first");
        assert_eq!(blocks.open_again(7), Some(100));
        assert!(matches!(blocks.take(100), Found::Interior));
        assert!(matches!(blocks.close(100), Closed::InUse));
        assert!(matches!(blocks.close(100), Closed::Last(_)));
        assert!(matches!(blocks.close(100), Closed::Unknown) && blocks.containing(100).is_none());
    }

    #[test]
    fn interior_addresses_find_the_block_and_never_free_it() {
        let mut blocks = Blocks::default();
        blocks.add_spilled(block(100, 50, 1));
        assert_eq!(blocks.containing(149).unwrap().start, 100);
        assert!(blocks.containing(150).is_none() && blocks.containing(99).is_none());
        assert!(matches!(blocks.take(120), Found::Interior));
        assert!(matches!(blocks.take(150), Found::Unknown));
        assert!(matches!(blocks.take(100), Found::Spilled(_)));
        assert!(matches!(blocks.take(100), Found::Unknown));
    }

    #[test]
    fn a_context_takes_its_own_blocks_with_it() {
        let mut blocks = Blocks::default();
        blocks.add_spilled(block(100, 50, 1));
        blocks.add_spilled(block(200, 50, 2));
        blocks.add_native(300, Native { bytes: 7, context: 1, source: 0 });
        blocks.add_native(400, Native { bytes: 9, context: 2, source: 0 });
        let (spilled, native_bytes) = blocks.take_of_context(1);
        assert_eq!((spilled.len(), spilled[0].start, native_bytes), (1, 100, 7));
        assert!(blocks.containing(200).is_some());
        assert!(matches!(blocks.take(400), Found::Native(_)));
    }
}
