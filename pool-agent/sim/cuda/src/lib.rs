//! The simulated `libcuda.so.1`: the CUDA driver API over host memory.
//!
//! A device pointer is an address in this process; a card is a number of bytes in the host's shared ledger. What a program
//! can observe through the driver API is kept as on hardware: error codes, reference counts, what another process's
//! descriptor gives, what a broken link does to data. Time is simulated per stream ([`stream`]), so measured bandwidth
//! follows the host's description and not this machine.
//!
//! Every exported function is declared through [`entry`]'s table, which `cuGetProcAddress` reads too.

#![allow(unsafe_code)] // A C interface over raw addresses; the macro in `entry` says what callers promise.

#[macro_use]
mod entry;

mod address_space;
mod capture;
mod code;
mod context;
mod device;
mod device_attributes;
mod driver;
mod event;
mod export_table;
mod host_memory;
mod ipc;
mod kernels;
mod launch;
mod memcpy;
mod memory;
mod memset;
mod module;
mod native;
mod native_arena;
mod peer;
mod pointer;
mod pools;
mod proc_address;
mod stream;
mod transfer;
mod visibility;
mod vmm;
mod vmm_access;
mod vmm_share;
