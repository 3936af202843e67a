//! Handles larger than any card has room for: one number to the tenant, several physical allocations behind it.
//!
//! Some frameworks (XLA's allocator, for one) take all of a device's memory as one handle and map it at once. Its parts lie on the primary
//! and on donors; whoever maps the handle maps them all, one behind the other. Parts are entries of [`crate::handles`] like any other
//! allocation, so each is charged until its last handle and its last mapping go. What no driver can do with several allocations at once, a
//! descriptor of them or a mapping of a part, is refused.
//!
//! A handle that lies on a donor only because it looked like a model's has such a number too, with one part, so that memory of the primary can
//! take the part's place before anybody used it (see `entry::opening`). It is otherwise treated as the driver's own.

use std::collections::{BTreeMap, HashMap};

use crate::abi::{AllocationProp, DevicePtr, Handle};

/// Numbers of handles over several allocations; the driver's own are addresses or small numbers.
const FIRST: Handle = 0x7a72_6e00_0000_0000;

/// Where such a handle is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Around {
    pub(crate) start: DevicePtr,
    pub(crate) bytes: u64,
    pub(crate) handle: Handle,
    /// The mapping's own, for those who tell buffers apart.
    pub(crate) id: u64,
    /// Whether it has several parts.
    pub(crate) spread: bool,
}

/// Mappings on their way out: where each starts, of which handle, its id.
#[derive(Debug)]
pub(crate) struct Unmapped(Vec<(DevicePtr, (Handle, u64))>);

/// One allocation behind a compound handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) handle: Handle,
    pub(crate) bytes: u64,
}

#[derive(Debug)]
struct Compound {
    /// Of each reference to the number its own handles: a driver may give other ones to who asks for what is mapped.
    references: Vec<Vec<Part>>,
    bytes: u64,
    /// Handle types, and reach of network cards, as the tenant asked for them.
    wanted: (i32, u8),
    mappings: u32,
    spread: bool,
    /// A descriptor of it is out: its memory stays what it is.
    exported: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Compounds {
    made: u64,
    known: HashMap<Handle, Compound>,
    /// Where each mapping starts, of which handle, and its id.
    mapped: BTreeMap<DevicePtr, (Handle, u64)>,
}

impl Compounds {
    pub(crate) fn create(&mut self, parts: Vec<Part>, wanted: &AllocationProp) -> Handle {
        self.made += 1;
        let handle = FIRST + self.made * 0x10;
        let bytes = parts.iter().map(|part| part.bytes).sum();
        let wanted = (wanted.handle_types, wanted.rdma_capable);
        let spread = parts.len() > 1;
        let compound =
            Compound { references: vec![parts], bytes, wanted, mappings: 0, spread, exported: false };
        self.known.insert(handle, compound);
        handle
    }

    /// A handle that the tenant holds: its parts in the order of their addresses.
    pub(crate) fn parts(&self, handle: Handle) -> Option<&[Part]> {
        self.known.get(&handle)?.references.last().map(Vec::as_slice)
    }

    /// What the handle says of itself.
    pub(crate) fn properties(&self, handle: Handle) -> Option<AllocationProp> {
        let held = self.known.get(&handle).filter(|compound| !compound.references.is_empty())?;
        let (handle_types, rdma_capable) = held.wanted;
        Some(AllocationProp { handle_types, rdma_capable, ..AllocationProp::LOCAL })
    }

    pub(crate) fn mapped(&mut self, at: DevicePtr, handle: Handle, id: u64) {
        if let Some(compound) = self.known.get_mut(&handle) {
            compound.mappings += 1;
            self.mapped.insert(at, (handle, id));
        }
    }

    /// The mapping that `at` lies in.
    pub(crate) fn around(&self, at: DevicePtr) -> Option<Around> {
        let (&start, &(handle, id)) = self.mapped.range(..=at).next_back()?;
        let &Compound { bytes, spread, .. } = self.known.get(&handle)?;
        (at - start < bytes).then_some(Around { start, bytes, handle, id, spread })
    }

    /// Another reference to a handle, by these handles of its parts.
    pub(crate) fn retained(&mut self, handle: Handle, parts: Vec<Part>) {
        if let Some(compound) = self.known.get_mut(&handle) {
            compound.references.push(parts);
        }
    }

    /// A reference goes, and the handles that it had of the parts with it. `None`: nobody holds such a handle.
    pub(crate) fn release(&mut self, handle: Handle) -> Option<Vec<Part>> {
        let parts = self.known.get_mut(&handle)?.references.pop()?;
        self.forget_if_gone(handle);
        Some(parts)
    }

    /// The only part of a handle that has one, of which a descriptor is about to be given.
    pub(crate) fn exporting(&mut self, handle: Handle) -> Option<Handle> {
        let compound = self.known.get_mut(&handle).filter(|compound| !compound.spread)?;
        let part = compound.references.last()?.first()?.handle;
        compound.exported = true;
        Some(part)
    }

    /// The handle that is mapped at `at` and its only part, if nobody but that mapping and its one holder knows of them.
    pub(crate) fn exchangeable(&self, at: DevicePtr) -> Option<(Handle, Part)> {
        let Around { start, handle, .. } = self.around(at)?;
        let compound = self.known.get(&handle)?;
        let alone = !compound.spread && !compound.exported && compound.mappings == 1;
        match compound.references.as_slice() {
            [parts] if alone && start == at => Some((handle, *parts.first()?)),
            _ => None,
        }
    }

    /// Other memory has taken the place of a handle's only part. False: the handle was given back meanwhile, or a descriptor of it given.
    pub(crate) fn exchanged(&mut self, handle: Handle, old: Part, new: Part) -> bool {
        let compound = self.known.get_mut(&handle).filter(|compound| !compound.exported);
        match compound.map(|compound| compound.references.as_mut_slice()) {
            Some([parts]) if *parts == [old] => {
                parts[0] = new;
                true
            }
            _ => false,
        }
    }

    /// Whether a range cuts through a mapping: such a one can only go whole.
    pub(crate) fn cuts(&self, at: DevicePtr, bytes: u64) -> bool {
        let end = at.saturating_add(bytes);
        let inside =
            |place: DevicePtr| self.around(place).is_some_and(|around| around.spread && around.start < place);
        inside(at) || (end > at && inside(end))
    }

    /// The mappings inside a range are about to go; the driver may give their addresses out again the moment they are free.
    pub(crate) fn unmapping(&mut self, at: DevicePtr, bytes: u64) -> Unmapped {
        let inside = self.mapped.range(at..at.saturating_add(bytes));
        let gone: Vec<_> = inside.map(|(&start, &of)| (start, of)).collect();
        for (start, _) in &gone {
            self.mapped.remove(start);
        }
        Unmapped(gone)
    }

    pub(crate) fn unmap_refused(&mut self, unmapped: Unmapped) {
        self.mapped.extend(unmapped.0);
    }

    pub(crate) fn unmap_done(&mut self, unmapped: &Unmapped) {
        for &(_, (handle, _)) in &unmapped.0 {
            if let Some(compound) = self.known.get_mut(&handle) {
                compound.mappings -= 1;
            }
            self.forget_if_gone(handle);
        }
    }

    fn forget_if_gone(&mut self, handle: Handle) {
        if self
            .known
            .get(&handle)
            .is_some_and(|compound| compound.references.is_empty() && compound.mappings == 0)
        {
            self.known.remove(&handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Vec<Part> {
        vec![Part { handle: 5, bytes: 30 }, Part { handle: 6, bytes: 10 }]
    }

    #[test]
    fn a_handle_lives_as_long_as_somebody_holds_or_maps_it() {
        let mut compounds = Compounds::default();
        let handle = compounds.create(two(), &AllocationProp::LOCAL);
        assert_eq!(compounds.parts(handle), Some(two().as_slice()));
        compounds.mapped(100, handle, 3);
        assert_eq!(compounds.release(handle), Some(two()));
        assert_eq!((compounds.release(handle), compounds.parts(handle)), (None, None));
        assert_eq!(
            compounds.around(139),
            Some(Around { start: 100, bytes: 40, handle, id: 3, spread: true })
        );
        assert_eq!((compounds.around(140), compounds.around(99)), (None, None));
        let again = vec![Part { handle: 8, bytes: 30 }, Part { handle: 9, bytes: 10 }];
        compounds.retained(compounds.around(120).unwrap().handle, again.clone());
        assert_eq!(compounds.parts(handle), Some(again.as_slice()), "a mapping brings the handle back");
        let going = compounds.unmapping(100, 40);
        assert_eq!(compounds.around(120), None, "the addresses may be another's already");
        compounds.unmap_refused(going);
        assert_eq!(compounds.around(120).map(|around| around.id), Some(3));
        let going = compounds.unmapping(100, 40);
        compounds.unmap_done(&going);
        assert_eq!(compounds.release(handle), Some(again));
        assert!(compounds.known.is_empty() && compounds.mapped.is_empty());
    }

    #[test]
    fn a_part_is_exchanged_while_one_holder_and_one_mapping_know_it() {
        let one = |handle| Part { handle, bytes: 40 };
        let mut compounds = Compounds::default();
        let handle = compounds.create(vec![one(5)], &AllocationProp::LOCAL);
        assert_eq!(compounds.exchangeable(100), None);
        compounds.mapped(100, handle, 0);
        assert_eq!(compounds.exchangeable(100), Some((handle, one(5))));
        assert_eq!(compounds.exchangeable(101), None);
        assert!(compounds.exchanged(handle, one(5), one(6)) && !compounds.exchanged(handle, one(5), one(7)));
        compounds.mapped(200, handle, 0);
        assert_eq!(compounds.exchangeable(100), None, "mapped twice");
        let going = compounds.unmapping(200, 40);
        compounds.unmap_done(&going);
        assert_eq!(compounds.exporting(handle), Some(6));
        assert_eq!(compounds.exchangeable(100), None, "somebody has a descriptor");
        assert!(!compounds.exchanged(handle, one(6), one(7)));
        assert!(!compounds.cuts(110, 10), "the driver refuses that by itself");
        assert_eq!(compounds.release(handle), Some(vec![one(6)]));
        let spread = compounds.create(two(), &AllocationProp::LOCAL);
        compounds.mapped(300, spread, 0);
        assert_eq!((compounds.exporting(spread), compounds.exchangeable(300)), (None, None));
    }

    #[test]
    fn a_mapping_goes_whole_or_not_at_all() {
        let mut compounds = Compounds::default();
        let handle = compounds.create(two(), &AllocationProp::LOCAL);
        compounds.mapped(100, handle, 0);
        for (at, bytes, cuts) in [
            (100, 40, false),
            (90, 60, false),
            (100, 39, true),
            (101, 39, true),
            (130, 10, true),
            (0, 110, true),
            (140, 10, false),
            (0, u64::MAX, false),
        ] {
            assert_eq!(compounds.cuts(at, bytes), cuts, "{at}+{bytes}");
        }
    }
}
