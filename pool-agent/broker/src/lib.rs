//! The broker: owns a pool's donor memory and leases chunks of it as file descriptors.
