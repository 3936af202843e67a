//! Messages between a stand-in and its broker: fixed-size records over a `SOCK_SEQPACKET` Unix socket.
//!
//! A client sends one [`Request`] per packet and, except for [`Op::Release`], reads one [`Reply`]. A reply to `Hello` carries two
//! descriptors: the read-only ledger page, then the writable local page. A reply to `Lease` carries one: the donor chunk, as
//! exported by the driver. Descriptors sent *to* the broker are closed unread. The broker learns who calls from
//! `SO_PEERCRED`, never from a message. Numbers are native-endian: both ends are one machine.

/// Version of this shape; a broker refuses any other with [`Status::BadVersion`].
pub const VERSION: u32 = 1;
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
    /// Give the lease `lease` back. No reply.
    Release = 3,
    /// After a broker restart: this process still holds `lease`, of `bytes`, on `donor`.
    Register = 4,
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
    /// In a reply to `Hello`: this process's slot in the local page, or `u32::MAX` when none is free.
    pub slot: u32,
    pub reserved: u32,
}

/// The ledger page: written by the broker only, mapped read-only by every client, read without a round trip.
/// Fields are read and written as relaxed atomics; `donors[..donor_count]` mean something.
#[derive(Debug)]
#[repr(C)]
pub struct LedgerPage {
    pub version: u32,
    pub donor_count: u32,
    pub capacity_bytes: [std::sync::atomic::AtomicU64; DONORS_MAX],
    pub leased_bytes: [std::sync::atomic::AtomicU64; DONORS_MAX],
    /// Returned by a tenant process, not yet proven free on the card.
    pub quarantined_bytes: [std::sync::atomic::AtomicU64; DONORS_MAX],
}

/// The local page: one slot a client process, in which that process alone keeps what it took from the primary.
/// The broker zeroes the slot when the connection closes, so a killed process leaves nothing behind.
#[derive(Debug)]
#[repr(C)]
pub struct LocalSlot {
    pub pid: std::sync::atomic::AtomicU32,
    pub pad: u32,
    pub local_bytes: std::sync::atomic::AtomicU64,
    pub donor_bytes: std::sync::atomic::AtomicU64,
}
