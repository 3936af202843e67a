//! Byte counts: who uses how much of which card. The only code that changes a card's `used_bytes`.
//!
//! Two kinds of use: *native* bytes and contexts belong to one process and go with it; a *physical allocation* is shared by
//! handles and mappings of several processes and goes with the last of them. When that last one goes while the allocation
//! was ever exported, it lingers until no descriptor is left ([`crate::lingering`] looks).

use crate::layout::{ALLOCATIONS_MAX, FREE, Holder, LINGERING, REFERENCED, REFERENCES_MAX, Reference, State};

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    #[error("the card is full")]
    OutOfMemory,
    #[error("a table of the simulated host is full")]
    TableFull,
    #[error("no such allocation")]
    Unknown,
}

/// Names one physical allocation for as long as it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AllocationId {
    pub index: u32,
    pub serial: u64,
}

/// One process's hold on an allocation: given once, let go once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    pub id: AllocationId,
    reference: u32,
}

impl State {
    pub fn free_bytes(&self, gpu: usize) -> u64 {
        let card = &self.gpus[gpu];
        card.capacity_bytes.saturating_sub(card.used_bytes)
    }

    fn take(&mut self, gpu: usize, bytes: u64) -> Result<(), LedgerError> {
        if bytes > self.free_bytes(gpu) {
            return Err(LedgerError::OutOfMemory);
        }
        self.gpus[gpu].used_bytes += bytes;
        Ok(())
    }

    fn give(&mut self, gpu: usize, bytes: u64) {
        let used = &mut self.gpus[gpu].used_bytes;
        debug_assert!(*used >= bytes, "a card never gives back more than it holds");
        *used = used.saturating_sub(bytes);
    }

    pub fn charge_native(&mut self, holder: usize, gpu: usize, bytes: u64) -> Result<(), LedgerError> {
        self.take(gpu, bytes)?;
        self.holders[holder].native_bytes[gpu] += bytes;
        Ok(())
    }

    pub fn discharge_native(&mut self, holder: usize, gpu: usize, bytes: u64) {
        let held = &mut self.holders[holder].native_bytes[gpu];
        let bytes = bytes.min(*held);
        *held -= bytes;
        self.give(gpu, bytes);
        self.leave_dirt(gpu, bytes);
    }

    /// On a card whose driver does not scrub, freed memory keeps what was in it.
    fn leave_dirt(&mut self, gpu: usize, bytes: u64) {
        let card = &mut self.gpus[gpu];
        if card.keeps_freed != 0 {
            card.dirty_bytes = (card.dirty_bytes + bytes).min(card.capacity_bytes);
        }
    }

    /// Whether a new allocation holds what somebody left; takes that dirt off the card.
    pub fn take_dirt(&mut self, gpu: usize, bytes: u64) -> bool {
        let card = &mut self.gpus[gpu];
        let dirty = card.dirty_bytes > 0;
        card.dirty_bytes = card.dirty_bytes.saturating_sub(bytes);
        dirty
    }

    pub fn mark_clean(&mut self, hold: Hold, clean: bool) {
        let entry = &mut self.allocations[hold.id.index as usize];
        if entry.serial == hold.id.serial {
            entry.clean = u32::from(clean);
        }
    }

    /// The first context of a process on a card costs memory; further ones share it.
    pub fn open_context(&mut self, holder: usize, gpu: usize, bytes: u64) -> Result<(), LedgerError> {
        if self.holders[holder].contexts[gpu] == 0 {
            self.take(gpu, bytes)?;
            self.holders[holder].context_bytes[gpu] = bytes;
        }
        self.holders[holder].contexts[gpu] += 1;
        if self.holders[holder].contexts[gpu] == 1 {
            self.account_begins(holder, gpu);
        }
        Ok(())
    }

    pub fn close_context(&mut self, holder: usize, gpu: usize) {
        if self.holders[holder].contexts[gpu] == 1 {
            self.account_ends(holder, gpu);
        }
        let entry = &mut self.holders[holder];
        entry.contexts[gpu] = entry.contexts[gpu].saturating_sub(1);
        if entry.contexts[gpu] == 0 {
            let bytes = std::mem::take(&mut entry.context_bytes[gpu]);
            self.give(gpu, bytes);
        }
    }

    /// A new physical allocation, held by its creator.
    pub fn create(&mut self, holder: usize, gpu: usize, bytes: u64) -> Result<Hold, LedgerError> {
        self.take(gpu, bytes)?;
        self.allocation_serial += 1;
        let id = match self.insert(gpu, bytes, self.allocation_serial) {
            Ok(id) => id,
            Err(error) => {
                self.give(gpu, bytes);
                return Err(error);
            }
        };
        self.allocations[id.index as usize].creator = holder as u32 + 1;
        self.allocations[id.index as usize].clean = 0;
        self.hold_or_drop(holder, id)
    }

    /// Takes hold of an allocation through its descriptor. The descriptor proves that the memory exists, so an allocation
    /// whose entry went while the descriptor travelled is entered again, even on a full card.
    pub fn import(
        &mut self,
        holder: usize,
        gpu: usize,
        bytes: u64,
        id: AllocationId,
    ) -> Result<Hold, LedgerError> {
        if let Some(index) = self.entry_index(id) {
            return self.hold(holder, AllocationId { index, serial: id.serial });
        }
        let id = self.insert(gpu, bytes, id.serial)?;
        self.gpus[gpu].used_bytes += bytes;
        self.allocations[id.index as usize].exported = 1;
        self.hold_or_drop(holder, id)
    }

    fn insert(&mut self, gpu: usize, bytes: u64, serial: u64) -> Result<AllocationId, LedgerError> {
        let index = self.free_allocation()?;
        let entry = &mut self.allocations[index];
        entry.gpu = gpu as u32;
        entry.bytes = bytes;
        entry.serial = serial;
        entry.references = 0;
        entry.exported = 0;
        entry.creator = 0;
        entry.live = REFERENCED;
        Ok(AllocationId { index: index as u32, serial })
    }

    fn entry_index(&self, id: AllocationId) -> Option<u32> {
        let matches = |index: &u32| {
            let entry = &self.allocations[*index as usize];
            entry.live != FREE && entry.serial == id.serial
        };
        let direct = Some(id.index).filter(|index| (*index as usize) < ALLOCATIONS_MAX && matches(index));
        // A revived allocation sits elsewhere than its descriptor says.
        direct.or_else(|| (0..self.allocations_high).find(matches))
    }

    fn hold(&mut self, holder: usize, id: AllocationId) -> Result<Hold, LedgerError> {
        let reference = self.new_reference(holder, id.index)?;
        let entry = &mut self.allocations[id.index as usize];
        entry.references += 1;
        if entry.live == LINGERING {
            entry.live = REFERENCED;
            self.lingering -= 1;
        }
        Ok(Hold { id, reference })
    }

    fn hold_or_drop(&mut self, holder: usize, id: AllocationId) -> Result<Hold, LedgerError> {
        self.hold(holder, id).inspect_err(|_| self.drop_allocation(id.index as usize))
    }

    pub fn let_go(&mut self, holder: usize, hold: Hold) {
        let entry = self.references[hold.reference as usize];
        let serial = self.allocations[entry.allocation as usize].serial;
        if entry.holder == holder as u32 + 1 && serial == hold.id.serial {
            self.drop_reference(holder, hold.reference as usize);
            self.unreference(entry.allocation as usize);
        }
    }

    pub fn mark_exported(&mut self, hold: Hold) {
        let entry = &mut self.allocations[hold.id.index as usize];
        if entry.serial == hold.id.serial {
            entry.exported = 1;
        }
    }

    fn unreference(&mut self, index: usize) {
        let entry = &mut self.allocations[index];
        entry.references = entry.references.saturating_sub(1);
        if entry.references > 0 {
            return;
        }
        if entry.exported == 0 {
            self.drop_allocation(index);
        } else if entry.live == REFERENCED {
            entry.live = LINGERING;
            self.lingering += 1;
        }
    }

    /// Frees the lingering allocations that `descriptor_left` denies.
    pub fn drop_lingering(&mut self, mut descriptor_left: impl FnMut(u64) -> bool) {
        for index in 0..self.allocations_high as usize {
            if self.lingering == 0 {
                break;
            }
            let entry = &self.allocations[index];
            if entry.live == LINGERING && !descriptor_left(entry.serial) {
                self.lingering -= 1;
                self.drop_allocation(index);
            }
        }
    }

    fn drop_allocation(&mut self, index: usize) {
        let (gpu, bytes) = (self.allocations[index].gpu as usize, self.allocations[index].bytes);
        self.allocations[index].live = FREE;
        self.give(gpu, bytes);
        if self.allocations[index].clean == 0 {
            self.leave_dirt(gpu, bytes);
        }
        self.recycle_allocation(index);
    }

    /// Removes a process and all it held.
    pub fn drop_holder(&mut self, holder: usize) {
        for gpu in 0..self.gpus.len() {
            if self.holders[holder].contexts[gpu] > 0 {
                self.account_ends(holder, gpu);
            }
            let entry = &mut self.holders[holder];
            entry.contexts[gpu] = 0;
            let native = std::mem::take(&mut entry.native_bytes[gpu]);
            let context = std::mem::take(&mut entry.context_bytes[gpu]);
            self.give(gpu, native + context);
            self.leave_dirt(gpu, native);
        }
        while let Some(at) = self.holders[holder].references.checked_sub(1) {
            let index = self.references[at as usize].allocation as usize;
            self.drop_reference(holder, at as usize);
            self.unreference(index);
        }
        self.holders[holder].live = FREE;
        let creator = holder as u32 + 1;
        let high = self.allocations_high as usize;
        for entry in self.allocations[..high].iter_mut().filter(|entry| entry.creator == creator) {
            entry.creator = 0;
        }
    }

    /// Bytes that NVML shows under a process on a card; `None` without a context there.
    pub fn process_bytes(&self, holder: usize, gpu: usize) -> Option<u64> {
        let entry = &self.holders[holder];
        if entry.live == FREE || entry.contexts[gpu] == 0 {
            return None;
        }
        let created: u64 = self.allocations[..self.allocations_high as usize]
            .iter()
            .filter(|a| a.live != FREE && a.creator == holder as u32 + 1 && a.gpu as usize == gpu)
            .map(|a| a.bytes)
            .sum();
        Some(entry.context_bytes[gpu] + entry.native_bytes[gpu] + created)
    }

    fn free_allocation(&mut self) -> Result<usize, LedgerError> {
        if let Some(index) = self.allocations_free.checked_sub(1) {
            self.allocations_free = self.allocations[index as usize].next_free;
            return Ok(index as usize);
        }
        let index = self.allocations_high as usize;
        if index == ALLOCATIONS_MAX {
            return Err(LedgerError::TableFull);
        }
        self.allocations_high += 1;
        Ok(index)
    }

    fn recycle_allocation(&mut self, index: usize) {
        self.allocations[index].next_free = self.allocations_free;
        self.allocations_free = index as u32 + 1;
    }

    fn new_reference(&mut self, holder: usize, allocation: u32) -> Result<u32, LedgerError> {
        let at = if let Some(at) = self.references_free.checked_sub(1) {
            self.references_free = self.references[at as usize].next;
            at
        } else if (self.references_high as usize) < REFERENCES_MAX {
            self.references_high += 1;
            self.references_high - 1
        } else {
            return Err(LedgerError::TableFull);
        };
        self.link_reference(holder, at, allocation);
        Ok(at)
    }

    fn link_reference(&mut self, holder: usize, at: u32, allocation: u32) {
        let head = self.holders[holder].references;
        self.references[at as usize] =
            Reference { holder: holder as u32 + 1, allocation, next: head, previous: 0 };
        if let Some(next) = head.checked_sub(1) {
            self.references[next as usize].previous = at + 1;
        }
        self.holders[holder].references = at + 1;
    }

    fn drop_reference(&mut self, holder: usize, at: usize) {
        let (next, previous) = (self.references[at].next, self.references[at].previous);
        match previous.checked_sub(1) {
            Some(before) => self.references[before as usize].next = next,
            None => self.holders[holder].references = next,
        }
        if let Some(after) = next.checked_sub(1) {
            self.references[after as usize].previous = previous;
        }
        self.references[at].holder = 0;
        self.references[at].next = self.references_free;
        self.references_free = at as u32 + 1;
    }

    /// Adds everything up again from the entries, after a process died while it changed them.
    pub fn recount(&mut self) {
        self.allocations_free = 0;
        self.references_free = 0;
        self.lingering = 0;
        for gpu in 0..self.gpus.len() {
            let of = |holder: &Holder| holder.context_bytes[gpu] + holder.native_bytes[gpu];
            let live = |holder: &&Holder| holder.live != FREE;
            self.gpus[gpu].used_bytes = self.holders.iter().filter(live).map(of).sum();
        }
        for holder in &mut self.holders {
            holder.references = 0;
        }
        for entry in &mut self.allocations {
            entry.references = 0;
        }
        for at in 0..self.references_high {
            let Reference { holder, allocation, .. } = self.references[at as usize];
            let whole = holder.checked_sub(1).map(|holder| holder as usize).filter(|holder| {
                self.holders[*holder].live != FREE && self.allocations[allocation as usize].live != FREE
            });
            if let Some(holder) = whole {
                self.link_reference(holder, at, allocation);
                self.allocations[allocation as usize].references += 1;
            } else {
                self.references[at as usize].holder = 0;
                self.references[at as usize].next = self.references_free;
                self.references_free = at + 1;
            }
        }
        for index in 0..self.allocations_high as usize {
            self.recount_allocation(index);
        }
    }

    fn recount_allocation(&mut self, index: usize) {
        let entry = &mut self.allocations[index];
        entry.live = match (entry.live, entry.references, entry.exported) {
            (FREE, ..) | (_, 0, 0) => FREE,
            (_, 0, _) => LINGERING,
            _ => REFERENCED,
        };
        let (live, gpu, bytes) = (entry.live, entry.gpu as usize, entry.bytes);
        if live == FREE {
            return self.recycle_allocation(index);
        }
        self.gpus[gpu].used_bytes += bytes;
        self.lingering += u32::from(live == LINGERING);
    }
}

#[cfg(test)]
mod tests;
