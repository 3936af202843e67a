//! The shared state file, byte for byte. Every type is plain data that is valid when zero, so a fresh sparse file is an
//! idle host, and a process that dies halfway leaves numbers that [`crate::ledger`] can add up again.

use std::cell::UnsafeCell;

pub const GPUS_MAX: usize = 16;
pub const HOLDERS_MAX: usize = 4096;
pub const ALLOCATIONS_MAX: usize = 65_536;
pub const REFERENCES_MAX: usize = 262_144;
pub const XIDS_MAX: usize = 64;
pub const ACCOUNTS_MAX: usize = 256;
pub const MAGIC: u64 = u64::from_le_bytes(*b"tarn-sim");
pub const LAYOUT_VERSION: u32 = 3;

/// The whole file: the lock, then what it guards.
#[repr(C)]
#[derive(Debug)]
pub struct File {
    pub magic: u64,
    pub version: u32,
    pub pad: u32,
    pub mutex: UnsafeCell<libc::pthread_mutex_t>,
    pub state: UnsafeCell<State>,
}

#[repr(C)]
#[derive(Debug)]
pub struct State {
    /// Set while a change is under way; found set by the next owner, the sums are counted again.
    pub changing: u32,
    pub holders_high: u32,
    pub allocations_high: u32,
    pub references_high: u32,
    /// Heads of the free lists, index + 1; 0 is empty.
    pub allocations_free: u32,
    pub references_free: u32,
    /// Allocations without handle or mapping whose exported descriptors may live on.
    pub lingering: u32,
    pub pad: u32,
    pub allocation_serial: u64,
    pub xid_serial: u64,
    /// When dead processes were last looked for, in milliseconds of the monotonic clock.
    pub swept_ms: u64,
    pub xids: [Xid; XIDS_MAX],
    /// Lives of processes on cards that keep account, the oldest overwritten.
    pub accounts: [Account; ACCOUNTS_MAX],
    pub accounts_serial: u64,
    pub gpus: [GpuState; GPUS_MAX],
    /// `[from][to]`.
    pub links: [[LinkState; GPUS_MAX]; GPUS_MAX],
    pub holders: [Holder; HOLDERS_MAX],
    pub allocations: [Allocation; ALLOCATIONS_MAX],
    pub references: [Reference; REFERENCES_MAX],
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Xid {
    pub serial: u64,
    pub gpu: u32,
    pub code: u32,
}

/// One process's contexts on one card, from the first to the last.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Account {
    /// 0 is free.
    pub serial: u64,
    pub holder: u32,
    /// As the process itself knows it.
    pub pid: u32,
    pub gpu: u32,
    pub running: u32,
    pub bytes_max: u64,
    pub started_us: u64,
    pub ended_us: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct GpuState {
    /// Sum of native, context and physical allocation bytes on this card.
    pub used_bytes: u64,
    pub capacity_bytes: u64,
    pub lost: u32,
    /// Plus one; 0 means the preset's idle temperature.
    pub temperature_c: u32,
    pub slow_allocation_ms: u32,
    pub hung_nvml_ms: u32,
    pub last_xid: u32,
    /// Plus one; 0 means that processes decide.
    pub load_percent: u32,
    /// As NVML numbers them: 0 default, 2 prohibited, 3 one process at a time.
    pub compute_mode: u32,
    /// Whether the driver keeps account of processes that used the card.
    pub accounting: u32,
    /// Freed memory keeps what was in it, and so do allocations made of it.
    pub keeps_freed: u32,
    pub pad: u32,
    /// Freed bytes that still hold something.
    pub dirty_bytes: u64,
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct LinkState {
    pub lost: u32,
    pub writes_vanish: u32,
    pub enable_fails: u32,
    pub atomics_missing: u32,
    /// Percent of bandwidth taken away.
    pub degraded_percent: u32,
    /// Writes to the upper half of an allocation change nothing, as beyond a window that is too small.
    pub upper_half_vanishes: u32,
    /// Kernel writes change nothing while another stream keeps the link busy.
    pub vanish_under_load: u32,
    /// One of `KERNELS_…`.
    pub kernels: u32,
}

/// What a kernel that touches memory across a link does.
pub const KERNELS_HANG: u32 = 1;
pub const KERNELS_CRASH: u32 = 2;

/// One process that uses the host.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Holder {
    pub live: u32,
    pub pid: u32,
    /// Clock ticks after boot, from `/proc`; 0 when it could not be read.
    pub start_ticks: u64,
    pub pid_namespace: u64,
    /// Differs between the programs that one process runs one after the other by exec.
    pub program: u64,
    /// Head of this process's references, index + 1.
    pub references: u32,
    pub pad: u32,
    pub contexts: [u32; GPUS_MAX],
    pub context_bytes: [u64; GPUS_MAX],
    pub native_bytes: [u64; GPUS_MAX],
}

/// Physical memory that handles in several processes may share.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Allocation {
    /// 0 free, 1 referenced, 2 lingering.
    pub live: u32,
    pub gpu: u32,
    pub bytes: u64,
    pub serial: u64,
    /// Processes that hold it.
    pub references: u32,
    pub exported: u32,
    /// The process that created it, index + 1; NVML shows the bytes under it.
    pub creator: u32,
    /// All of it was set to zero and nothing was written since.
    pub clean: u32,
    pub pad: u32,
    /// Next free entry, index + 1.
    pub next_free: u32,
}

/// That one process holds one allocation; how often is the process's own business.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Reference {
    /// Index + 1; 0 is free.
    pub holder: u32,
    pub allocation: u32,
    /// Next in the holder's list, or next free; index + 1.
    pub next: u32,
    pub previous: u32,
}

pub const FREE: u32 = 0;
pub const REFERENCED: u32 = 1;
pub const LINGERING: u32 = 2;
