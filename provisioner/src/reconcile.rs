//! What to do about the difference between what is wanted, recorded and observed.
//!
//! [`reconcile`] takes one instance as recorded, its host as last heard of, and the instant, and returns a [`Plan`]: effects that the
//! caller applies in one transaction, guarded by the instance's row version, so that a plan made from an old reading changes
//! nothing. The same function serves a fresh report, an API call (right after it stored a new wish) and the periodic sweep.
//!
//! Rules that hold whatever comes:
//! * lost contact moves no workload and frees no card; it flags the host and stops new placements there;
//! * cards are released only on the host's proof that nothing of the generation runs;
//! * a reading of an older generation changes nothing;
//! * charging ends at the instant a stop or termination was accepted, or at the last evidence when the instance ended by itself;
//! * nothing is done for an instance that has converged.

mod breaker;
mod contact;
mod effect;
mod instance;
mod orphan;
mod plan;
mod report_order;

pub use breaker::{Brakes, DESTRUCTIVE_ACTIONS_MAX, WINDOW_SECONDS, judge, window_of};
pub use contact::{SILENCE_SECONDS_MAX, unreachable_since};
pub use effect::{Alert, CloseAt, Effect, Ignored, Plan};
pub use instance::{HostView, Instance, Published, Sighting};
pub use orphan::{ORPHAN_GRACE_SECONDS, OrphanRecord, Remedy, orphan_remedy};
pub use plan::{
    PLACEMENT_ATTEMPTS_MAX, PROVISIONING_STALL_SECONDS, UNPROVEN_ALERT_SECONDS, placement_refused, reconcile,
};
pub use report_order::{Freshness, KnownBoot, freshness};

#[cfg(test)]
mod tests;
