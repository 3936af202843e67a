//! Reason codes: why an instance is in its state, stable for machines.

use tarn_protocol::control::{FailReason, StopReason};

use super::texts;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReasonCode {
    NoCapacity,
    ImagePullFailed,
    ContainerCreateFailed,
    PortConflict,
    VolumeError,
    P2pDataMismatch,
    PoolVerifyFailed,
    PeerLost,
    GpuFault,
    DriverMismatch,
    ProvisioningTimeout,
    HostLost,
    /// The agent could not do its part: disk, cgroup, namespace.
    HostError,
    OutOfMemory,
    DiskFull,
    IdlePolicy,
    TtlReached,
    BalanceExhausted,
    /// What the tenant wanted to spend in the period is spent.
    SpendCapReached,
    Maintenance,
    UserRequest,
    /// The tenant's command ended by itself with status 0.
    CommandEnded,
    /// The tenant's command could not be started or ended with an error.
    CommandFailed,
    /// The host reports trouble without a code that this build knows.
    HealthWarning,
}

texts!(ReasonCode {
    NoCapacity = "no_capacity",
    ImagePullFailed = "image_pull_failed",
    ContainerCreateFailed = "container_create_failed",
    PortConflict = "port_conflict",
    VolumeError = "volume_error",
    P2pDataMismatch = "p2p_data_mismatch",
    PoolVerifyFailed = "pool_verify_failed",
    PeerLost = "peer_lost",
    GpuFault = "gpu_fault",
    DriverMismatch = "driver_mismatch",
    ProvisioningTimeout = "provisioning_timeout",
    HostLost = "host_lost",
    HostError = "host_error",
    OutOfMemory = "out_of_memory",
    DiskFull = "disk_full",
    IdlePolicy = "idle_policy",
    TtlReached = "ttl_reached",
    BalanceExhausted = "balance_exhausted",
    SpendCapReached = "spend_cap_reached",
    Maintenance = "maintenance",
    UserRequest = "user_request",
    CommandEnded = "command_ended",
    CommandFailed = "command_failed",
    HealthWarning = "health_warning",
});

/// Whose doing it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    Tarn,
    Tenant,
}

impl ReasonCode {
    pub const fn fault(self) -> Fault {
        match self {
            Self::NoCapacity
            | Self::ContainerCreateFailed
            | Self::P2pDataMismatch
            | Self::PoolVerifyFailed
            | Self::PeerLost
            | Self::GpuFault
            | Self::DriverMismatch
            | Self::ProvisioningTimeout
            | Self::HostLost
            | Self::HostError
            | Self::VolumeError
            | Self::Maintenance
            | Self::HealthWarning => Fault::Tarn,
            Self::ImagePullFailed
            | Self::PortConflict
            | Self::OutOfMemory
            | Self::DiskFull
            | Self::IdlePolicy
            | Self::TtlReached
            | Self::BalanceExhausted
            | Self::SpendCapReached
            | Self::UserRequest
            | Self::CommandEnded
            | Self::CommandFailed => Fault::Tenant,
        }
    }

    /// Whether another set of cards may do better: the pool, not the tenant's program, failed its proof.
    pub const fn blames_cards(self) -> bool {
        matches!(self, Self::P2pDataMismatch | Self::PoolVerifyFailed | Self::PeerLost | Self::GpuFault)
    }

    /// The code for a degradation that the agent describes in its own words.
    pub fn of_degradation(text: &str) -> Self {
        text.parse().unwrap_or(Self::HealthWarning)
    }
}

impl From<FailReason> for ReasonCode {
    fn from(reason: FailReason) -> Self {
        match reason {
            FailReason::CommandFailed => Self::CommandFailed,
            FailReason::OutOfMemory => Self::OutOfMemory,
            FailReason::PoolVerifyFailed => Self::PoolVerifyFailed,
            FailReason::P2pDataMismatch => Self::P2pDataMismatch,
            FailReason::PeerLost => Self::PeerLost,
            FailReason::GpuFault => Self::GpuFault,
            FailReason::DriverMismatch => Self::DriverMismatch,
            FailReason::HostError => Self::HostError,
        }
    }
}

impl From<StopReason> for ReasonCode {
    fn from(reason: StopReason) -> Self {
        match reason {
            StopReason::UserRequest => Self::UserRequest,
            StopReason::BalanceExhausted => Self::BalanceExhausted,
            StopReason::CommandEnded => Self::CommandEnded,
        }
    }
}
