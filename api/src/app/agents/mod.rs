//! The agent's side of the control plane: joining, reporting what was observed, and being told what should be.

pub mod accept_report;
pub mod desired;
pub mod hardware;
pub mod join;
pub mod observed;
pub mod orphans;
