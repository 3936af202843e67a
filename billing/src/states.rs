//! Which states bill: the table that the price page publishes, once.
//!
//! Billing does not see an instance's lifecycle; whoever drives it maps its state to one of these and does what the answer says.

use serde::{Deserialize, Serialize};

/// What an instance is doing, as far as its bill is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeteredState {
    /// Requested up to starting: pull, cache, pool check.
    Preparing,
    /// Running, from its first ready evidence.
    Running,
    /// Running with a fault that the tenant caused.
    RunningTenantFault,
    /// Running as far as we know; the host is silent.
    Unreachable,
    /// Degraded by us: lost donor, failed self-test.
    DegradedByUs,
    /// Stopping or terminating, from acceptance on, even with the host unreachable.
    Stopping,
    Stopped,
    /// A start that failed, or a fault of the host.
    HostFault,
    Terminated,
}

/// How the primary card is billed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardBilling {
    /// No segment is open; one that is closes at the instant the state began.
    Free,
    /// One segment is open on the primary's UUID, and proven seconds bill.
    Proven,
    /// The segment closes at its last good evidence.
    FreeAfterLastGood,
}

/// How a volume of the instance is billed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageBilling {
    Free,
    IfVolumeExists,
    /// Unless the fault makes it unusable.
    IfUsable,
}

impl MeteredState {
    pub const ALL: [Self; 9] = [
        Self::Preparing,
        Self::Running,
        Self::RunningTenantFault,
        Self::Unreachable,
        Self::DegradedByUs,
        Self::Stopping,
        Self::Stopped,
        Self::HostFault,
        Self::Terminated,
    ];

    pub const fn card(self) -> CardBilling {
        match self {
            Self::Preparing | Self::Stopping | Self::Stopped | Self::Terminated => CardBilling::Free,
            Self::Running | Self::RunningTenantFault | Self::Unreachable => CardBilling::Proven,
            Self::DegradedByUs | Self::HostFault => CardBilling::FreeAfterLastGood,
        }
    }

    /// Storage bills until its deletion is accepted, so a stopping instance still pays for a volume it keeps.
    pub const fn storage(self) -> StorageBilling {
        match self {
            Self::HostFault => StorageBilling::IfUsable,
            Self::Terminated => StorageBilling::Free,
            _ => StorageBilling::IfVolumeExists,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b9_only_running_states_bill_the_card() {
        let billing = MeteredState::ALL.into_iter().filter(|state| state.card() == CardBilling::Proven);
        let expected = [MeteredState::Running, MeteredState::RunningTenantFault, MeteredState::Unreachable];
        assert_eq!(billing.collect::<Vec<_>>(), expected);
    }
}
