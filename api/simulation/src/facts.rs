//! What went into the control plane, in the order of its commits: all that the oracle is told.

use tarn_protocol::control::UsageEvidence;
use tarn_protocol::ids::{GpuUuid, HostId, InstanceId};
use tarn_protocol::units::{BootId, Generation, Sequence, Timestamp};

/// What a report shows of one instance, as far as its bill is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    Running {
        ready: u64,
    },
    /// On its way, or being stopped: nothing changes.
    OnItsWay,
    /// Does not work, for a reason of ours; may come back.
    Degraded,
    /// Will not run again in this generation.
    Ended,
}

#[derive(Debug, Clone)]
pub enum Fact {
    /// Cards were leased under a new generation.
    Leased {
        instance_id: InstanceId,
        generation: Generation,
        at: Timestamp,
        cards: Vec<GpuUuid>,
    },
    /// A start was accepted.
    Started {
        instance_id: InstanceId,
        offer: usize,
        tenant: usize,
        at: Timestamp,
    },
    /// An end was accepted: by the tenant, or because the money had ended at `at`.
    Ended {
        instance_id: InstanceId,
        at: Timestamp,
        settled: Option<Settled>,
    },
    Heard {
        host_id: HostId,
        boot_id: BootId,
        seq: Sequence,
        mono_ms: u64,
        at: Timestamp,
        shown: Vec<(InstanceId, Generation, Shown)>,
        usage: Vec<UsageEvidence>,
        settled: Vec<(InstanceId, Settled)>,
    },
    Priced {
        offer: usize,
        hourly: i64,
        from: Timestamp,
    },
}

/// What an open segment had settled when a fact came: no end can be before it.
#[derive(Debug, Clone, Copy)]
pub struct Settled {
    pub price_version: i64,
    pub seconds: i64,
}
