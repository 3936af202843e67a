//! Physical handles that the tenant created, and how long each is charged: until its last handle **and** its last mapping go.
//!
//! A released handle whose memory is still mapped keeps the memory alive, and a mapping can bring a handle back
//! (`cuMemRetainAllocationHandle`), so both are counted.

use std::collections::{BTreeMap, HashMap};

use crate::abi::{DevicePtr, Handle};

/// One physical allocation and why it is still charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) bytes: u64,
    /// The broker's number for a donor chunk; `None` for local memory.
    pub(crate) lease: Option<u64>,
    /// The donor of such a chunk, by its index.
    pub(crate) donor: usize,
    /// The handle types that the tenant asked for.
    pub(crate) handle_types: i32,
    /// Whether the tenant asked that network cards may reach it.
    pub(crate) rdma_capable: u8,
    /// Bytes that were opened to the device in one call with it, for the first time; 0 before that.
    pub(crate) burst_bytes: u64,
}

#[derive(Debug)]
struct Entry {
    memory: Memory,
    handles: u32,
    mappings: u32,
}

#[derive(Debug, Clone, Copy)]
struct Mapped {
    memory: u64,
    bytes: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Handles {
    next: u64,
    entries: HashMap<u64, Entry>,
    /// Handle to allocation, with the references that this handle value carries.
    by_handle: HashMap<Handle, (u64, u32)>,
    mappings: BTreeMap<DevicePtr, Mapped>,
}

impl Handles {
    pub(crate) fn created(&mut self, handle: Handle, memory: Memory) {
        self.next += 1;
        self.entries.insert(self.next, Entry { memory, handles: 1, mappings: 0 });
        self.by_handle.insert(handle, (self.next, 1));
    }

    pub(crate) fn of(&self, handle: Handle) -> Option<Memory> {
        let (id, _) = self.by_handle.get(&handle)?;
        Some(self.entries.get(id)?.memory)
    }

    /// The driver mapped `handle` at `at`.
    pub(crate) fn mapped(&mut self, at: DevicePtr, bytes: u64, handle: Handle) {
        let Some(&(id, _)) = self.by_handle.get(&handle) else { return };
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.mappings += 1;
            self.mappings.insert(at, Mapped { memory: id, bytes });
        }
    }

    /// The driver gave a handle for what is mapped at `at`.
    pub(crate) fn retained(&mut self, at: DevicePtr, handle: Handle) {
        let Some((start, mapped)) = self.mappings.range(..=at).next_back() else { return };
        let (inside, id) = (at - start < mapped.bytes, mapped.memory);
        if let Some(entry) = self.entries.get_mut(&id).filter(|_| inside) {
            entry.handles += 1;
            self.by_handle.entry(handle).or_insert((id, 0)).1 += 1;
        }
    }

    /// A reference of `handle` is about to go. Returned: what the driver's refusal would have to put back.
    pub(crate) fn releasing(&mut self, handle: Handle) -> Option<Released> {
        let (id, references) = self.by_handle.get_mut(&handle)?;
        let id = *id;
        *references -= 1;
        if *references == 0 {
            self.by_handle.remove(&handle);
        }
        let entry = self.entries.get_mut(&id)?;
        entry.handles -= 1;
        Some(Released { handle, id })
    }

    pub(crate) fn release_refused(&mut self, released: &Released) {
        if let Some(entry) = self.entries.get_mut(&released.id) {
            entry.handles += 1;
            self.by_handle.entry(released.handle).or_insert((released.id, 0)).1 += 1;
        }
    }

    /// The release went through: the memory, if that was its last hold.
    pub(crate) fn release_done(&mut self, released: &Released) -> Option<Memory> {
        self.ended(released.id)
    }

    /// The mappings inside a range: where each is, and its bytes.
    pub(crate) fn mappings(&self, at: DevicePtr, bytes: u64) -> Vec<(DevicePtr, u64)> {
        let inside = self.mappings.range(at..at.saturating_add(bytes));
        inside.map(|(&start, mapped)| (start, mapped.bytes)).collect()
    }

    /// The mapping that `at` lies in, and its memory.
    pub(crate) fn around(&self, at: DevicePtr) -> Option<(DevicePtr, u64, Memory)> {
        let (&start, mapped) = self.mappings.range(..=at).next_back()?;
        let memory = self.entries.get(&mapped.memory)?.memory;
        (at - start < mapped.bytes).then_some((start, mapped.bytes, memory))
    }

    /// A range is opened to the device. If whole mappings fill it and none of them was open before, they are one burst: where each is, and its
    /// memory.
    pub(crate) fn opening(&mut self, at: DevicePtr, bytes: u64) -> Option<Vec<(DevicePtr, Memory)>> {
        let inside = self.mappings.range(at..at.checked_add(bytes)?);
        let inside: Vec<_> = inside.map(|(&start, mapped)| (start, *mapped)).collect();
        let fill: u64 = inside.iter().map(|(_, mapped)| mapped.bytes).sum();
        let fresh = |id: &u64| self.entries.get(id).is_some_and(|entry| entry.memory.burst_bytes == 0);
        if fill != bytes || !inside.iter().all(|(_, mapped)| fresh(&mapped.memory)) {
            return None;
        }
        let burst = inside.into_iter().filter_map(|(start, mapped)| {
            let entry = self.entries.get_mut(&mapped.memory)?;
            entry.memory.burst_bytes = bytes;
            Some((start, entry.memory))
        });
        Some(burst.collect())
    }

    /// The memory behind a handle is a part of a burst.
    pub(crate) fn belongs_to_burst(&mut self, handle: Handle, burst_bytes: u64) {
        let entry = self.by_handle.get(&handle).and_then(|(id, _)| self.entries.get_mut(id));
        if let Some(entry) = entry {
            entry.memory.burst_bytes = burst_bytes;
        }
    }

    /// The mappings inside a range are about to go.
    pub(crate) fn unmapping(&mut self, at: DevicePtr, bytes: u64) -> Unmapped {
        let end = at.saturating_add(bytes);
        let starts: Vec<DevicePtr> = self.mappings.range(at..end).map(|(&start, _)| start).collect();
        Unmapped(starts.iter().filter_map(|&start| Some((start, self.mappings.remove(&start)?))).collect())
    }

    pub(crate) fn unmap_refused(&mut self, unmapped: Unmapped) {
        self.mappings.extend(unmapped.0);
    }

    /// The unmapping went through: the memories of which that was the last hold.
    pub(crate) fn unmap_done(&mut self, unmapped: Unmapped) -> Vec<Memory> {
        let mut ended = Vec::new();
        for (_, mapped) in unmapped.0 {
            if let Some(entry) = self.entries.get_mut(&mapped.memory) {
                entry.mappings -= 1;
            }
            ended.extend(self.ended(mapped.memory));
        }
        ended
    }

    fn ended(&mut self, id: u64) -> Option<Memory> {
        let entry = self.entries.get(&id)?;
        if entry.handles > 0 || entry.mappings > 0 {
            return None;
        }
        self.entries.remove(&id).map(|entry| entry.memory)
    }
}

/// A handle reference on its way out.
#[derive(Debug)]
pub(crate) struct Released {
    handle: Handle,
    id: u64,
}

/// Mappings on their way out.
#[derive(Debug)]
pub(crate) struct Unmapped(Vec<(DevicePtr, Mapped)>);

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Memory =
        Memory { bytes: 10, lease: Some(4), donor: 0, handle_types: 0, rdma_capable: 0, burst_bytes: 0 };

    #[test]
    fn the_charge_ends_with_the_last_handle_and_the_last_mapping() {
        let mut handles = Handles::default();
        handles.created(1, MEMORY);
        handles.mapped(100, 10, 1);
        handles.mapped(200, 10, 1);
        assert_eq!(handles.around(209), Some((200, 10, MEMORY)));
        assert_eq!((handles.around(210), handles.around(99)), (None, None));
        let released = handles.releasing(1).unwrap();
        assert_eq!(handles.release_done(&released), None);
        let first = handles.unmapping(100, 10);
        assert!(handles.unmap_done(first).is_empty());
        handles.retained(205, 7);
        let second = handles.unmapping(200, 10);
        assert!(handles.unmap_done(second).is_empty());
        let released = handles.releasing(7).unwrap();
        assert_eq!(handles.release_done(&released), Some(MEMORY));
        assert!(handles.releasing(7).is_none());
    }

    #[test]
    fn what_is_opened_at_once_for_the_first_time_is_one_burst() {
        let mut handles = Handles::default();
        for at in 1..4 {
            handles.created(at, MEMORY);
            handles.mapped(at * 10, 10, at);
        }
        assert_eq!(handles.opening(10, 15), None, "a part of a mapping");
        assert_eq!(handles.opening(5, 15), None, "addresses without memory");
        let burst = Memory { burst_bytes: 20, ..MEMORY };
        assert_eq!(handles.opening(10, 20), Some(vec![(10, burst), (20, burst)]));
        assert_eq!(handles.opening(10, 30), None, "some of it was open before");
        assert_eq!(handles.opening(30, 10).map(|burst| burst.len()), Some(1));
    }

    #[test]
    fn what_the_driver_refused_changes_nothing() {
        let mut handles = Handles::default();
        handles.created(1, MEMORY);
        handles.mapped(100, 10, 1);
        let released = handles.releasing(1).unwrap();
        handles.release_refused(&released);
        let unmapped = handles.unmapping(100, 10);
        handles.unmap_refused(unmapped);
        assert_eq!(handles.of(1), Some(MEMORY));
        let unmapped = handles.unmapping(0, 1000);
        assert!(handles.unmap_done(unmapped).is_empty());
        let released = handles.releasing(1).unwrap();
        assert_eq!(handles.release_done(&released), Some(MEMORY));
    }
}
