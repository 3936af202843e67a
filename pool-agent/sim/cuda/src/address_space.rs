//! What lies where in this process: native blocks, reservations with their mappings, page-locked host memory. Anything
//! else is ordinary host memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use tarn_sim::layout::GPUS_MAX;

use crate::code::Code;
use crate::memory::{Memory, Place};

#[derive(Debug, Default)]
pub(crate) struct AddressSpace {
    pub(crate) blocks: BTreeMap<u64, Block>,
    /// Start to length.
    pub(crate) reservations: BTreeMap<u64, u64>,
    pub(crate) mappings: BTreeMap<u64, Mapping>,
    pub(crate) pinned: BTreeMap<u64, Pinned>,
}

/// One `cuMemAlloc` and its kin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block {
    pub(crate) bytes: u64,
    /// What the ledger was charged.
    pub(crate) charged: u64,
    pub(crate) card: usize,
    pub(crate) context: usize,
    pub(crate) kind: BlockKind,
    /// Never used again in this process.
    pub(crate) id: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Plain,
    Managed,
    /// From a stream-ordered pool, by its handle.
    Pooled(usize),
    /// Another process's block, opened through legacy IPC.
    Opened,
}

#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) bytes: u64,
    pub(crate) memory: Arc<Memory>,
    pub(crate) access: Access,
    pub(crate) id: u64,
}

/// Per card: 0 none, 1 read, 3 read and write; the numbers of `CUmemAccess_flags`.
pub(crate) type Access = [u8; GPUS_MAX];

#[derive(Debug, Clone, Copy)]
pub(crate) struct Pinned {
    pub(crate) bytes: u64,
    pub(crate) flags: u32,
    /// The program's own memory, registered; otherwise ours.
    pub(crate) registered: bool,
}

/// A stretch of one kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) place: Place,
}

/// The entry that covers `address`.
pub(crate) fn covering<T>(
    map: &BTreeMap<u64, T>,
    address: u64,
    bytes: impl Fn(&T) -> u64,
) -> Option<(u64, &T)> {
    let (start, entry) = map.range(..=address).next_back()?;
    (address - start < bytes(entry)).then_some((*start, entry))
}

impl AddressSpace {
    pub(crate) fn block(&self, address: u64) -> Option<(u64, &Block)> {
        covering(&self.blocks, address, |block| block.bytes)
    }

    pub(crate) fn mapping(&self, address: u64) -> Option<(u64, &Mapping)> {
        covering(&self.mappings, address, |mapping| mapping.bytes)
    }

    pub(crate) fn reservation(&self, address: u64) -> Option<(u64, u64)> {
        covering(&self.reservations, address, |bytes| *bytes).map(|(start, bytes)| (start, *bytes))
    }

    pub(crate) fn pinned(&self, address: u64) -> Option<(u64, &Pinned)> {
        covering(&self.pinned, address, |pinned| pinned.bytes)
    }

    /// Whether the driver knows the address as a card's memory.
    pub(crate) fn on_card(&self, address: u64) -> bool {
        self.block(address).is_some() || self.mapping(address).is_some()
    }

    /// Splits a range by the memory behind it, checking that `card` may reach all of it.
    pub(crate) fn pieces(&self, address: u64, bytes: u64, card: usize) -> Result<Vec<Piece>, Code> {
        let end = address.checked_add(bytes).ok_or(Code::INVALID_VALUE)?;
        let mut pieces = Vec::with_capacity(1);
        let mut at = address;
        while at < end {
            let (stop, place) = self.piece_at(at, end, card)?;
            pieces.push(Piece { address: at, bytes: stop - at, place });
            at = stop;
        }
        Ok(pieces)
    }

    fn piece_at(&self, at: u64, end: u64, card: usize) -> Result<(u64, Place), Code> {
        if let Some((start, block)) = self.block(at) {
            // A block ends where it was asked to end; running over it is the caller's error.
            let stop = start + block.bytes;
            return if end > stop { Err(Code::INVALID_VALUE) } else { Ok((end, Place::Card(block.card))) };
        }
        if let Some((start, mapping)) = self.mapping(at) {
            let reachable = mapping.access[card] != 0;
            let stop = end.min(start + mapping.bytes);
            return if reachable { Ok((stop, mapping.memory.place)) } else { Err(Code::INVALID_VALUE) };
        }
        if self.reservation(at).is_some() {
            return Err(Code::INVALID_VALUE);
        }
        Ok((end, Place::Host))
    }
}
