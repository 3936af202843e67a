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
    /// What a stopped instance costs.
    pub stopped_per_hour: Amount,
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
