//! The simulated `libnvidia-ml.so.1`: the monitoring view of the same cards that the simulated CUDA driver uses.
//!
//! It reads the host's shared state and changes nothing. Memory created without a context (a broker's) appears in a card's
//! `used` and under no process; a context appears as a process with its bytes.

#![allow(unsafe_code)] // A C interface; the macro in `entry` says what callers promise.

#[macro_use]
mod entry;

mod events;
mod identity;
mod memory;
mod modes;
mod nvlink;
mod pcie;
mod processes;
mod sensors;
mod session;
mod system;
mod topology;
