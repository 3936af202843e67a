//! Words that the agent, its pool processes and the control plane share.
//!
//! Everything here is a value: ids, units and the documents that cross a process boundary. Nothing in this crate opens a
//! socket, reads a clock or draws a random number, so the stand-ins can link it into a tenant's process without weight.
//!
//! * [`ids`], [`units`]: newtypes for every id, byte count, instant and generation.
//! * [`hardware`]: what an agent found on its host, and the certificates of its links.
//! * [`pool_config`]: the document that the agent writes for one pool; broker and stand-ins read it.
//! * [`broker_wire`]: the fixed-size messages between a stand-in and its broker.
//! * [`reach`]: which donors a process proved to reach, as its neighbours read it.
//! * [`probe`]: the kernels that prove a link, and their pattern.
//! * [`control`]: the HTTP documents between agent and control plane.

pub mod broker_wire;
pub mod control;
pub mod hardware;
pub mod ids;
pub mod pool_config;
pub mod probe;
pub mod reach;
pub mod units;
