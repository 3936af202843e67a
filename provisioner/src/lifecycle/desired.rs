//! What an instance's owner wants; written by the API alone.

use tarn_protocol::units::Timestamp;

use super::{ReasonCode, texts};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DesiredState {
    Running,
    Stopped,
    Terminated,
}

texts!(DesiredState {
    Running = "running",
    Stopped = "stopped",
    Terminated = "terminated",
});

/// A desired state with its cause and the instant at which it was accepted: billing ends there, not when the host obeys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    pub state: DesiredState,
    pub reason: ReasonCode,
    pub since: Timestamp,
}
