//! Messages between a stand-in and its broker: fixed-size records over a `SOCK_SEQPACKET` Unix socket.
//!
//! A client sends one [`Request`] per packet and, except for [`Op::Release`], reads one [`Reply`]. A reply to `Hello` or `Observe`
//! carries two descriptors: the read-only ledger page, then the local page. A reply to `Lease` carries one: the donor chunk, as
//! exported by the driver; a reply to `Probe` one for every donor in its mask. Descriptors sent *to* the broker are closed unread, but
//! for the one of a `Share`, which is kept unread. The broker learns who
//! calls from `SO_PEERCRED`, never from a message. Numbers are native-endian: both ends are one machine. Both pages are sealed
//! against resizing, the ledger page also against writing.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::reach::ReachTable;

/// Version of this shape; a broker refuses any other with [`Status::BadVersion`].
pub const VERSION: u32 = 2;
/// Most donors a pool can have.
pub const DONORS_MAX: usize = 15;
/// Client processes with a slot in the local page.
pub const SLOTS_MAX: usize = 4096;

/// What a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    /// First message of a connection. `nonce` names the process for re-registration.
    Hello = 1,
    /// Lease up to `bytes` (at least one granule), from donor `donor` or any ([`DONOR_ANY`]). `exact` = 1 refuses less.
    Lease = 2,
    /// Give the lease `lease` back: one of this connection, or one of this process that no broker was there to take back. No reply.
    Release = 3,
    /// After a broker restart: this process still holds `lease`, of `bytes`, on `donor`.
    Register = 4,
    /// A descriptor of a granule of every donor, nobody's lease: importing it (and dropping it) proves that this process reaches the
    /// card. No card is advertised to a tenant before that. The reply's `bytes` is the mask of donors (bit = index) whose descriptor
    /// comes along, in order; `lease` the mask of donors too full to be tried.
    Probe = 5,
    /// First message of a connection that only reads the pages: no slot, no leases. For the agent and the NVML stand-in.
    Observe = 6,
    /// Bring the ledger page up to date: everything already given back is taken in, the cards are looked at, then comes the
    /// reply. Asked before a request is refused on the page's word.
    Settle = 7,
    /// Offers piece `exact` of the block `nonce` (drawn by its owner) to the other processes of this pool: the donor chunk of the
    /// caller's `lease`, or, with lease 0, local memory of `bytes` whose descriptor comes along. Pieces are offered in order, from 0.
    Share = 8,
    /// Takes the offer of the block `nonce` back; with the connection all offers of its process go. No reply.
    Unshare = 9,
    /// Piece `exact` of the block `nonce` that some process of this pool shares: its bytes and a descriptor.
    Open = 10,
    /// A descriptor of the caller's own `lease`, for another process: drivers do not export what was imported.
    Export = 11,
}

impl Op {
    pub const fn from_code(code: u32) -> Option<Self> {
        Some(match code {
            1 => Self::Hello,
            2 => Self::Lease,
            3 => Self::Release,
            4 => Self::Register,
            5 => Self::Probe,
            6 => Self::Observe,
            7 => Self::Settle,
            8 => Self::Share,
            9 => Self::Unshare,
            10 => Self::Open,
            11 => Self::Export,
            _ => return None,
        })
    }
}

/// In [`Request::donor`]: the broker chooses.
pub const DONOR_ANY: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Request {
    pub version: u32,
    /// An [`Op`]; unknown values are refused with [`Status::BadRequest`].
    pub op: u32,
    pub nonce: u64,
    pub bytes: u64,
    pub lease: u64,
    pub donor: u32,
    pub exact: u32,
}

impl Request {
    pub const BYTES: usize = size_of::<Self>();

    pub const fn new(op: Op) -> Self {
        Self { version: VERSION, op: op as u32, nonce: 0, bytes: 0, lease: 0, donor: DONOR_ANY, exact: 0 }
    }

    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut out = Packer::new();
        out.u32(self.version).u32(self.op).u64(self.nonce).u64(self.bytes).u64(self.lease);
        out.u32(self.donor).u32(self.exact);
        out.bytes
    }

    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let mut from = Unpacker { bytes: &bytes, at: 0 };
        Self {
            version: from.u32(),
            op: from.u32(),
            nonce: from.u64(),
            bytes: from.u64(),
            lease: from.u64(),
            donor: from.u32(),
            exact: from.u32(),
        }
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    Ok = 0,
    /// No donor has the bytes.
    OutOfMemory = 1,
    BadVersion = 2,
    BadRequest = 3,
    /// The caller is not of this pool's instance.
    Forbidden = 4,
    /// Too many leases or requests; retry after freeing.
    Limited = 5,
    /// The driver refused; `driver_code` says how.
    Driver = 6,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Reply {
    pub version: u32,
    /// A [`Status`].
    pub status: u32,
    pub lease: u64,
    /// Bytes leased; may be less than asked unless `exact`.
    pub bytes: u64,
    /// Index into the pool config's donors.
    pub donor: u32,
    /// `CUresult` when the driver refused, else 0.
    pub driver_code: u32,
    /// In a reply to `Hello`: this process's slot in the local page, or [`SLOT_NONE`] when none is free.
    pub slot: u32,
    /// In a reply to `Lease`: [`CHUNK_RDMA`], [`CHUNK_MORE`].
    pub flags: u32,
}

/// In [`Reply::flags`]: a network card may reach the chunk, as the driver promises for memory that was created so.
pub const CHUNK_RDMA: u32 = 1;
/// In [`Reply::flags`]: the chunk is smaller than asked although the donor has more: ask again for the rest.
pub const CHUNK_MORE: u32 = 2;
/// In [`Reply::slot`]: no slot.
pub const SLOT_NONE: u32 = u32::MAX;

impl Reply {
    pub const BYTES: usize = size_of::<Self>();

    pub const fn new(status: Status) -> Self {
        Self {
            version: VERSION,
            status: status as u32,
            lease: 0,
            bytes: 0,
            donor: DONOR_ANY,
            driver_code: 0,
            slot: SLOT_NONE,
            flags: 0,
        }
    }

    pub const fn ok(&self) -> bool {
        self.status == Status::Ok as u32
    }

    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut out = Packer::new();
        out.u32(self.version).u32(self.status).u64(self.lease).u64(self.bytes);
        out.u32(self.donor).u32(self.driver_code).u32(self.slot).u32(self.flags);
        out.bytes
    }

    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let mut from = Unpacker { bytes: &bytes, at: 0 };
        Self {
            version: from.u32(),
            status: from.u32(),
            lease: from.u64(),
            bytes: from.u64(),
            donor: from.u32(),
            driver_code: from.u32(),
            slot: from.u32(),
            flags: from.u32(),
        }
    }
}

struct Packer<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Packer<N> {
    const fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }

    fn put(&mut self, part: &[u8]) -> &mut Self {
        self.bytes[self.at..self.at + part.len()].copy_from_slice(part);
        self.at += part.len();
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_ne_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_ne_bytes())
    }
}

struct Unpacker<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Unpacker<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let at = self.at;
        self.at += N;
        std::array::from_fn(|i| self.bytes[at + i])
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.take())
    }
}

/// The ledger page: written by the broker only, mapped read-only by every client, read without a round trip.
/// Fields are read and written as relaxed atomics; entries below `donor_count` mean something.
#[derive(Debug)]
#[repr(C)]
pub struct LedgerPage {
    pub version: AtomicU32,
    pub donor_count: AtomicU32,
    pub capacity_bytes: [AtomicU64; DONORS_MAX],
    pub leased_bytes: [AtomicU64; DONORS_MAX],
    /// Returned by a tenant process, not yet proven free on the card.
    pub quarantined_bytes: [AtomicU64; DONORS_MAX],
    /// One more than the highest slot of the local page ever given out: where a reader may stop.
    pub slots_high: AtomicU32,
    pub reserved: AtomicU32,
}

/// One donor's line of the ledger page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DonorFigures {
    pub capacity_bytes: u64,
    pub leased_bytes: u64,
    pub quarantined_bytes: u64,
}

impl DonorFigures {
    pub const fn free_bytes(self) -> u64 {
        self.capacity_bytes.saturating_sub(self.leased_bytes).saturating_sub(self.quarantined_bytes)
    }
}

impl LedgerPage {
    /// The donors' figures now, in the order of the pool config. Each number is whole; together they may be a moment apart.
    pub fn donors(&self) -> impl Iterator<Item = DonorFigures> + '_ {
        let count = (self.donor_count.load(Relaxed) as usize).min(DONORS_MAX);
        (0..count).map(|at| DonorFigures {
            capacity_bytes: self.capacity_bytes[at].load(Relaxed),
            leased_bytes: self.leased_bytes[at].load(Relaxed),
            quarantined_bytes: self.quarantined_bytes[at].load(Relaxed),
        })
    }
}

/// Length of the local page.
pub const LOCAL_PAGE_BYTES: usize = size_of::<LocalPage>();

/// The local page, which client processes write.
#[derive(Debug)]
#[repr(C)]
pub struct LocalPage {
    pub slots: [LocalSlot; SLOTS_MAX],
    /// What processes have proven to reach, for those that start beside them.
    pub reached: ReachTable,
}

/// One slot a client process, in which that process alone keeps what it took from the primary.
/// The broker zeroes the slot when the connection closes, so a killed process leaves nothing behind.
#[derive(Debug)]
#[repr(C)]
pub struct LocalSlot {
    /// Written by the broker, as `SO_PEERCRED` gave it; 0 in a free slot.
    pub pid: AtomicU32,
    /// The same process as the instance's own pid namespace numbers it; written by the broker, 0 when it cannot tell.
    pub pid_inside: AtomicU32,
    pub local_bytes: AtomicU64,
    pub donor_bytes: AtomicU64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_survive_the_wire(op: u32, nonce: u64, bytes: u64, lease: u64, donor: u32, exact: u32) {
            let request = Request { version: VERSION, op, nonce, bytes, lease, donor, exact };
            prop_assert_eq!(Request::from_bytes(request.to_bytes()), request);
            let reply = Reply { lease, bytes, donor, slot: exact, driver_code: op, ..Reply::new(Status::Limited) };
            prop_assert_eq!(Reply::from_bytes(reply.to_bytes()), reply);
        }
    }

    #[test]
    fn free_bytes_never_wrap() {
        let figures = DonorFigures { capacity_bytes: 4, leased_bytes: 3, quarantined_bytes: 2 };
        assert_eq!(figures.free_bytes(), 0);
    }
}
