//! An instance as its tenant reads it.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use tarn_protocol::hardware::{LinkClass, LinkGrade};
use tarn_protocol::ids::{CertificateId, EventId, GpuUuid, HostId, InstanceId, LeaseId, OfferId, SshKeyId};
use utoipa::ToSchema;

use super::request::{Constraints, PolicyChoice};
use crate::http::amount::Amount;
use crate::http::instant::Instant;

/// What a tenant rents. `state` is the last record; `unreachable` is a flag beside it and changes neither state nor workload.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct InstanceDocument {
    #[schema(value_type = String, example = "ins_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    pub id: InstanceId,
    pub label: String,
    pub tags: BTreeMap<String, String>,
    #[schema(value_type = String, example = "pool-96")]
    pub offer_id: OfferId,
    /// What the tenant wants: `running`, `stopped` or `terminated`.
    #[schema(example = "running")]
    pub desired_state: &'static str,
    /// The last record: `requested`, `scheduling`, `provisioning`, `starting`, `running`, `degraded`, `stopping`, `stopped`,
    /// `failed`, `terminating` or `terminated`.
    #[schema(example = "running")]
    pub state: &'static str,
    /// Since when `state` holds.
    pub since: Instant,
    /// While it is prepared: the step at hand, for people.
    pub phase: Option<String>,
    #[schema(example = "user_request")]
    pub reason_code: Option<&'static str>,
    pub reason_detail: Option<String>,
    /// Legal now; anything else answers 409.
    #[schema(example = json!(["stop", "restart", "terminate"]))]
    pub actions: Vec<&'static str>,
    /// Whether the primary card is charged now.
    pub billable: bool,
    /// Present while the host is silent.
    pub unreachable: Option<UnreachableDocument>,
    /// Grows with every start.
    pub generation: i64,
    pub price: PriceDocument,
    pub disk: DiskDocument,
    pub spending: SpendingDocument,
    /// What goes on costing while the instance is stopped, and what would end it. Empty: nothing.
    pub keeps_costing: Vec<KeepsCostingDocument>,
    /// The cards of the current or last run; absent before any were placed.
    pub pool: Option<PoolDocument>,
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub policy: PolicyChoice,
    pub constraints: Constraints,
    #[schema(value_type = Vec<String>)]
    pub ssh_key_ids: Vec<SshKeyId>,
    /// Terminated at this instant.
    pub ttl_at: Option<Instant>,
    pub created_at: Instant,
    pub terminated_at: Option<Instant>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct UnreachableDocument {
    pub since: Instant,
}

/// What an instance costs while it is billable.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PriceDocument {
    /// For the whole instance, however many cards.
    pub per_hour: Amount,
    /// Cards on the bill: one, however many the pool has.
    pub metered_cards: u32,
    /// What a stopped instance costs: its disk. Cards of a stopped instance cost nothing and are not reserved.
    pub stopped_per_hour: Amount,
}

/// The instance's disk: its home directory. It outlives a stop and ends with the instance.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct DiskDocument {
    /// GiB of 2^30 bytes, as chosen.
    #[schema(example = 50)]
    pub size_gb: u32,
    /// Of it, priced as `disk-included`; the rest is priced as `disk`.
    #[schema(example = 20)]
    pub included_gb: u32,
    /// Of the whole disk, at the prices of now.
    pub per_hour: Amount,
    /// `not_yet` (before it was first seen usable), `charged`, `unpaid` (kept for seven days after the money ended) or `ended`.
    #[schema(example = "charged")]
    pub billing: &'static str,
    /// Whether the host keeps the disk to its size. Not yet on any host: it is charged as chosen, not as used.
    #[schema(example = false)]
    pub enforced: bool,
}

/// What an instance has cost and costs, from the same computation that ends it when the money ends.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SpendingDocument {
    /// Settled so far: the sum of its lines in `/v1/charges`.
    pub settled: Amount,
    /// Proven and not settled yet.
    pub accrued: Amount,
    /// What it costs now, cards and disk.
    pub per_hour: Amount,
    /// When the wallet is empty if nothing changes, and this instance stops with it. Absent: nothing of it costs, or the money outlasts
    /// ten years.
    pub paid_until: Option<Instant>,
    /// From now to `paid_until`.
    #[schema(example = 15_000)]
    pub seconds_left: Option<i64>,
}

/// One thing that costs while its instance is stopped.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct KeepsCostingDocument {
    /// `disk`.
    #[schema(example = "disk")]
    pub item: &'static str,
    /// The SKU in the price book.
    #[schema(example = "disk")]
    pub sku: String,
    pub size_gb: u32,
    pub per_hour: Amount,
    /// What would end it.
    #[schema(example = "DELETE /v1/instances/ins_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    pub ends_with: String,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PoolDocument {
    #[schema(value_type = String)]
    pub lease_id: LeaseId,
    #[schema(value_type = String)]
    pub host_id: HostId,
    /// Primary and peers.
    pub cards: usize,
    /// The only card that is billed.
    #[schema(value_type = String, example = "GPU-00000001-0000-4000-8000-000000000000")]
    pub primary_gpu: GpuUuid,
    pub peer_gpus: Vec<PeerDocument>,
    /// Least class of any peer's link; absent for a single card.
    #[schema(value_type = Option<String>, example = "pcie_p2p")]
    pub link_class: Option<LinkClass>,
    /// The total that the instance sees, once it showed one.
    pub pool_size_bytes: Option<u64>,
    /// False once the cards were given back.
    pub held: bool,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PeerDocument {
    #[schema(value_type = String)]
    pub uuid: GpuUuid,
    #[schema(value_type = String, example = "nvlink")]
    pub link_class: LinkClass,
    #[schema(value_type = String, example = "a")]
    pub grade: LinkGrade,
    /// Measured, decimal megabytes per second.
    pub read_mb_per_second: u64,
    #[schema(value_type = Option<String>)]
    pub certificate_id: Option<CertificateId>,
}

/// Where the bytes of an instance are, card by card.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ResidencyDocument {
    #[schema(value_type = String)]
    pub instance_id: InstanceId,
    pub observed_at: Option<Instant>,
    pub pool_size_bytes: Option<u64>,
    /// Used on the primary.
    pub local_bytes: u64,
    /// Used on peers.
    pub peer_bytes: u64,
    pub cards: Vec<CardResidencyDocument>,
    /// The host's own memory, which takes what no card has room for; absent where the host gives none. Never part of the pool's size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_tier: Option<HostTierDocument>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct HostTierDocument {
    pub capacity_bytes: u64,
    pub used_bytes: u64,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CardResidencyDocument {
    #[schema(value_type = String)]
    pub uuid: GpuUuid,
    /// `primary` or `donor`.
    #[schema(value_type = String)]
    pub role: tarn_protocol::control::CardRole,
    pub capacity_bytes: u64,
    pub used_bytes: u64,
    pub quarantined_bytes: u64,
}

/// One line of an instance's history.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct EventDocument {
    #[schema(value_type = String)]
    pub id: EventId,
    #[schema(example = "instance.running")]
    pub kind: String,
    #[schema(value_type = Object)]
    pub detail: Value,
    pub created_at: Instant,
}

/// The end of an instance's output.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct LogDocument {
    #[schema(value_type = String)]
    pub instance_id: InstanceId,
    pub observed_at: Option<Instant>,
    /// At most 64 KiB.
    pub tail: String,
}
