//! The NVML stand-in, `libnvidia-ml.so.1`: what `nvidia-smi` and every monitoring library inside an instance see.
//!
//! It answers one question: *which cards are there, and how much memory have they*. The answer must be the one that the CUDA
//! stand-in gives: one device, the primary, with the pool's total. Everything else (clocks, temperature, names, errors) is
//! the real library's, reached through `DT_NEEDED libnvidia-ml-real.so.1`: this library exports only what it changes.
//!
//! * [`seat`]: our own directory, the pool config beside us, the real library.
//! * [`pages`]: the broker's shared pages, so that both stand-ins read one ledger.
//! * [`devices`]: one card by every route; donors are not found.
//! * [`memory`], [`processes`]: totals and per-process bytes with what was spilled.
//! * [`links`]: no half-visible donor behind an NVLink.
//!
//! Without a pool config the library changes nothing. It never prints, and no panic crosses the C boundary.
#![allow(unsafe_code)] // the whole crate is a C ABI over raw pointers of its callers

mod devices;
mod ffi;
mod links;
mod memory;
mod pages;
mod processes;
mod seat;
