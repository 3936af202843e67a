//! The stand-in `libcuda.so.1`: through it an unmodified program sees a pool of cards as one device.
//!
//! It exports only what it changes; all else resolves to the real driver, which is this library's one dependency. The pool shows
//! as the primary card with more memory: totals, allocation and what pointers say of themselves are answered here, everything
//! else is the primary's own truth. An allocation is native while the primary has room; what spills is one address range
//! stitched from local and donor chunks.
//!
//! Rules of this code: the real driver is asked first wherever it has the answer; no lock is held across a driver call; nothing
//! is ever written to stdout or stderr; no panic crosses the C interface; what fails inside is a clean "out of memory".
//!
//! * [`table`]: the one list of intercepted symbols, from which exports, address map and coverage test derive.
//! * [`entry`]: what each intercepted call does, by family. [`real`]: the real driver. [`abi`]: its types.
//! * [`pool`]: this process's view of the pool; [`link`]: the broker connection; [`reach`]: which
//!   donors count; [`account`]: bytes charged against the cap.
//! * [`api`]: what a program that knows of its pool may ask; [`hints`]: what it says of its memory; [`migrate`]: moving a block.
//! * [`placement`]: where a request goes, as values; [`growth`]: what is large and what it leaves; [`stitch`]: carrying a plan out, or undoing it.
//! * [`blocks`], [`handles`]: what this process has allocated. [`ipc`]: blocks between processes of the
//!   pool. [`pooled`]: what stream-ordered pools keep. [`capture`]: when nothing may be mapped or moved.

#![allow(unsafe_code)] // A C interface in front of a C library; every block says why it is sound.
#![allow(non_snake_case)] // Exported symbols carry the driver's names.

mod abi;
mod account;
mod api;
mod blocks;
mod capture;
mod compound;
mod entry;
mod growth;
mod handles;
mod hints;
mod ipc;
mod link;
mod log;
mod migrate;
mod pages;
mod placement;
mod pool;
mod pooled;
mod reach;
mod real;
mod seat;
mod socket;
mod stitch;
mod table;
mod visibility;
