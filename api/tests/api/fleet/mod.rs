//! Hosts that join, instances that live and end, money that follows: a control plane in virtual time with scripted agents.

pub mod agent;
mod capacity;
mod contact;
mod disks;
mod exhaustion;
pub mod hardware;
mod lives;
mod orphans;
mod prices;
mod replicas;
mod reports;
pub mod world;
