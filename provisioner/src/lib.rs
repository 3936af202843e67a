//! Placement, leases and the instance lifecycle as typed states, without I/O.
//!
//! Everything here takes values and returns decisions: no clock, no randomness, no database. The control plane reads rows,
//! asks, and writes what it was told inside one transaction, so a test (or a seeded simulator) drives the same code.
//!
//! * [`snapshot`]: the plain values that the store gives: hosts, cards, links.
//! * [`fleet`]: those values, indexed for fast decisions and kept current by `take` and `release`.
//! * [`placement`]: which cards a request gets, why none, and what would fit instead.
//! * [`lease`]: an instance's claim on cards and the rules that fence older claims.
//! * [`lifecycle`]: what is wanted, recorded and observed, and the one mapping between them.
//! * [`reconcile`]: what to do about the difference, as a list of effects.
//! * [`quota`]: whether a tenant may hold more.
//!
//! Arrows inside: `snapshot ← topology ← choice ← fleet ← placement ← lease`, `{lifecycle, lease} ← reconcile`.

mod card_set;
mod choice;
pub mod fleet;
pub mod lease;
pub mod lifecycle;
pub mod placement;
pub mod quota;
pub mod reconcile;
pub mod snapshot;
mod topology;

pub use choice::Score;
