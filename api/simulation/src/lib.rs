//! A seeded simulation of what is rented and what it costs, in virtual time; for tests only.
//!
//! The question it answers: whatever crashes, sleeps, is cut off, comes twice, late or out of order, whatever races, does the ledger
//! end at the truth? One seed makes one [`script`]: hosts, tenants, prices, and what happens to them. A [`world`] carries it out against a
//! [`control_plane`] that makes the real one's transactions around the real decisions: the lifecycle and placement of `tarn-provisioner`,
//! the metering, settlement, exhaustion, grants, holds and prices of `tarn-billing`. A [`host`] is an agent with a disk and a boot's
//! clock, and knows what really ran. At every commit [`audit`] checks what must always hold, and at the end the bill must be the
//! [`oracle`]'s, line by line.
//!
//! Agents send no wall time, so a wall clock of theirs cannot lie: their boot's clock can only stand still while the host sleeps. The
//! control plane's own wall clock is set back and forth.
//!
//! A seed that fails is shrunk to the happenings it needs and printed as a command: `SEED=7 KEEP=1,4 cargo test -p tarn-simulation replay`.

#![allow(clippy::missing_panics_doc, reason = "a simulation that cannot go on has found something")]

pub mod audit;
pub mod choices;
pub mod control_plane;
pub mod facts;
mod fleet;
pub mod host;
pub mod oracle;
pub mod script;
mod shrink;
pub mod verdict;
pub mod world;

pub use script::Script;
pub use shrink::{Failure, TRIES_MAX, try_script};
pub use verdict::Summary;
