//! Hosts that join, instances that live and end, money that follows: a control plane in virtual time with scripted agents.

pub mod agent;
pub mod hardware;
mod lives;
mod world;
