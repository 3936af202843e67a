//! The broker: owns a pool's donor memory and leases chunks of it as file descriptors.
//!
//! One process per pool, apart from the agent, so that an agent restart or upgrade never touches a tenant's memory. It opens no
//! context on any card and allocates nothing up front. A tenant process asks over a Unix socket, receives a chunk as a
//! descriptor, imports and maps it; from then on the bytes live as long as that process needs them, broker or no broker.
//!
//! * [`ledger`]: who holds which bytes, as values. [`journal`]: the same on disk, for the successor of a killed broker.
//! * [`memory`], [`donors`]: the cards, as the ledger needs them and through the driver.
//! * [`pages`]: the shared pages that clients read without a round trip.
//! * [`stock`]: chunks made ahead of growth. [`shares`]: blocks that one process offers to the others.
//! * [`desk`]: a request in, a reply out. [`server`]: sockets, rounds and limits. [`admission`]: who may call.
//! * [`observer`]: the agent's window on a running broker.

pub mod admission;
pub mod desk;
pub mod donors;
pub mod journal;
pub mod ledger;
pub mod memory;
pub mod observer;
pub mod pages;
pub mod server;
pub mod shares;
pub mod start;
pub mod stock;
pub mod wire;
