//! The real agent, broker, stand-ins and tenant program on a simulated host, under a control plane of a few lines.
//!
//! Needs the workspace's artefacts beside the test executable.

#![allow(clippy::unwrap_used)] // all of this is a test, helpers included

mod certificates;
mod control_plane;
mod damage;
mod entry_paths;
mod escapes;
mod fencing;
mod floor;
mod gpus;
mod host;
mod kills;
mod life;
mod money;
mod probes;
mod scrubs;
