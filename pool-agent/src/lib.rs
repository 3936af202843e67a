//! The host agent: it joins the control plane, knows its cards and links, runs instances and proves what ran.
//!
//! The control plane owns what should run ([`desired`](sync)), the agent owns what it observed ([`board`], [`report`]), and each only
//! compares. Nothing that the control plane does or fails to do ends a paid instance: what is wanted is stored on disk
//! ([`wanted`]) before anything acts on it, and every instance has a worker ([`instance::worker`]) that moves it one journaled step
//! at a time, as the pure [`instance::planner`] says. Tenants and brokers are processes of their own session, so an agent
//! that dies or is upgraded finds them again and never starts anything twice.
//!
//! * [`join`], [`control_plane`], [`sync`], [`report`], [`backoff`]: the dialogue with the control plane.
//! * [`nvml`], [`health`], [`probe`]: cards by UUID, faults, links proven by data in throw-away processes.
//! * [`instance`], [`broker_process`], [`runtime`], [`card_use`], [`donor_guard`], [`scrub`]: what runs here.
//! * [`usage`]: evidence of running time. [`durable_file`], [`state_dir`], [`rejoin`], [`failpoint`], [`process_mark`], [`clock`]: ground.

pub mod backoff;
pub mod board;
pub mod broker_process;
pub mod card_use;
pub mod cli;
pub mod clock;
pub mod control_plane;
pub mod donor_guard;
pub mod durable_file;
pub mod failpoint;
pub mod health;
pub mod instance;
pub mod join;
pub mod nvml;
pub mod probe;
pub mod process_mark;
pub mod rejoin;
pub mod report;
pub mod run;
pub mod runtime;
pub mod scrub;
pub mod state_dir;
pub mod sync;
pub mod usage;
pub mod wanted;
pub mod xid;
