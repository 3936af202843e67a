//! What the brake on automatic destruction looks at.

use tarn_protocol::ids::{HostId, InstanceId};
use tarn_protocol::units::Timestamp;

use crate::stored::rows;

rows! {
    /// How much of the fleet answers, and how much was destroyed in one window already.
    FleetHealth / FleetHealthRaw {
        hosts: u64,
        hosts_unreachable: u64,
        steps: u64,
    }
    /// A destructive step that nobody asked for, in its slot of a window.
    AutomaticStepRow / AutomaticStepRaw {
        window_at: Timestamp,
        slot: u64,
        kind: String,
        host_id: Option<HostId>,
        instance_id: InstanceId,
        taken_at: Timestamp,
    }
}
