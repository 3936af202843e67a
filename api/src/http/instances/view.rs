//! An instance as its tenant reads it.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;

use super::request::{Constraints, PolicyChoice};

/// What a tenant rents. `state` is the last record; `unreachable` is a flag beside it and changes neither state nor workload.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct InstanceView {
    #[schema(example = "ins_01hzy7m0000000000000000000")]
    pub id: String,
    pub label: String,
    pub tags: BTreeMap<String, String>,
    pub offer_id: String,
    /// What the tenant wants: `running`, `stopped` or `terminated`.
    pub desired_state: String,
    /// The last record: `requested`, `provisioning`, `starting`, `running`, `degraded`, `stopping`, `stopped`, `failed`,
    /// `terminating` or `terminated`.
    pub state: String,
    /// Since when `state` holds.
    pub since: String,
    /// While it is prepared: the step at hand, for people.
    pub phase: Option<String>,
    pub reason_code: Option<String>,
    pub reason_detail: Option<String>,
    /// Legal now; anything else answers 409.
    pub actions: Vec<String>,
    /// Whether the card is billed now.
    pub billable: bool,
    /// Present while the host is silent.
    pub unreachable: Option<UnreachableView>,
    pub generation: i64,
    pub price: PriceView,
    pub pool: Option<PoolView>,
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub policy: Option<PolicyChoice>,
    pub constraints: Constraints,
    pub ssh_key_ids: Vec<String>,
    /// Terminated at this instant.
    pub ttl_at: Option<String>,
    pub created_at: String,
    pub terminated_at: Option<String>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct UnreachableView {
    pub since: String,
}

/// What the instance costs while it is billable.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PriceView {
    /// Decimal string.
    #[schema(example = "2.40")]
    pub per_hour: String,
    #[schema(example = "CNY")]
    pub currency: String,
    /// Cards that are billed: one, however many the pool has.
    pub metered_cards: i64,
    /// What a stopped instance costs per hour.
    #[schema(example = "0.00")]
    pub stopped_per_hour: String,
}

/// The cards that the instance holds.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PoolView {
    pub lease_id: String,
    pub host_id: String,
    pub cards: usize,
    /// The only card that is billed.
    pub primary_gpu: String,
    pub peer_gpus: Vec<PeerView>,
    /// Least class of any donor's link.
    pub link_class: String,
    /// The total that the instance sees, once it reported one.
    pub pool_size_bytes: Option<i64>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PeerView {
    pub uuid: String,
    pub link_class: String,
    pub grade: String,
    pub read_mb_per_second: i64,
    pub certificate_id: Option<String>,
}

/// One page of a tenant's instances, newest last.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct InstanceList {
    pub items: Vec<InstanceView>,
    pub next_cursor: Option<String>,
}

/// Where the bytes of an instance are, card by card.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ResidencyView {
    pub instance_id: String,
    pub observed_at: Option<String>,
    pub pool_size_bytes: Option<i64>,
    pub local_bytes: u64,
    pub peer_bytes: u64,
    pub cards: Vec<CardResidencyView>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CardResidencyView {
    pub uuid: String,
    /// `primary` or `donor`.
    pub role: String,
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub quarantined_bytes: u64,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct EventView {
    pub id: String,
    pub kind: String,
    pub detail: serde_json::Value,
    pub at: String,
}

/// One page of an instance's history, oldest first. `next_cursor` is always present: ask again from it for what comes next.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct EventList {
    pub items: Vec<EventView>,
    pub next_cursor: Option<String>,
}
