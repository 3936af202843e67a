//! One instance on this host: what is journaled about it, what comes next, and who does it.
//!
//! [`record`] is the durable state, written by the instance's worker alone. [`planner`] is pure: record, goal and facts give
//! the one next step. [`worker`] does it, journaling before and after each external action. A generation's command is
//! started at most once: the process is born waiting at a gate, its pid is written down, and only then the gate opens.

pub mod cleanup;
pub mod directory;
pub mod environment;
pub mod output;
pub mod planner;
pub mod pool;
pub mod record;
pub mod residency;
#[cfg(test)]
pub(crate) mod samples;
pub mod steps;
pub mod worker;
