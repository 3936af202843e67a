//! What the planner remembers between two plans, and what a host must let go.

use std::collections::BTreeSet;

use tarn_protocol::control::Goal;
use tarn_protocol::ids::{GpuUuid, HostId, InstanceId};
use tarn_protocol::units::{Generation, Timestamp};

use crate::stored::{Json, rows};

rows! {
    InstancePlanRow / InstancePlanRaw {
        instance_id: InstanceId,
        /// The goal that the host was last told; all three or none.
        published_generation: Option<Generation>,
        published_goal: Option<Json<Goal>>,
        published_revision: Option<i64>,
        failed_sets: Json<Vec<BTreeSet<GpuUuid>>>,
        progress_at: Timestamp,
    }
    /// A copy of an instance that its host must not keep.
    EvictionRow / EvictionRaw {
        host_id: HostId,
        instance_id: InstanceId,
        generation: Generation,
        created_at: Timestamp,
    }
    /// A workload that a host shows and that is no instance here.
    OrphanRow / OrphanRaw {
        host_id: HostId,
        instance_id: InstanceId,
        /// The highest that was shown.
        generation: Generation,
        first_seen_at: Timestamp,
        /// `None`: kept for an operator to look at.
        removal_ordered_at: Option<Timestamp>,
    }
}
