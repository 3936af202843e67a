//! What tenants rent, and its history.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tarn_protocol::control::{CardResidency, Phase};
use tarn_protocol::hardware::LinkClass;
use tarn_protocol::ids::{EventId, HostId, InstanceId, OfferId, SshKeyId, TenantId};
use tarn_protocol::pool_config::Policy;
use tarn_protocol::units::{Bytes, Generation, Timestamp};
use tarn_provisioner::lifecycle::{DesiredState, ReasonCode, State};

use crate::stored::{Json, rows};

/// What the tenant asked for; kept, and checked again at every start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LaunchSpec {
    pub command: Vec<String>,
    #[serde(default)]
    pub env: Vec<(String, String)>,
    pub policy: Policy,
    pub link_class_min: LinkClass,
    #[serde(default)]
    pub region: Option<String>,
    /// Only there.
    #[serde(default)]
    pub host_id: Option<HostId>,
    #[serde(default)]
    pub ssh_keys: Vec<SshKeyId>,
    /// Of its disk, in GiB.
    #[serde(default = "disk_gib_default")]
    pub disk_gib: u32,
}

/// What every instance gets that asks for nothing else.
pub const DISK_GIB_DEFAULT: u32 = 20;

const fn disk_gib_default() -> u32 {
    DISK_GIB_DEFAULT
}

rows! {
    InstanceRow / InstanceRaw {
        id: InstanceId,
        tenant_id: TenantId,
        /// Id of the user or API key.
        created_by: Option<String>,
        label: String,
        tags: Json<BTreeMap<String, String>>,
        offer_id: OfferId,
        spec: Json<LaunchSpec>,
        desired_state: DesiredState,
        desired_reason: ReasonCode,
        /// Accepted at: billing ends there.
        desired_since: Timestamp,
        state: State,
        state_since: Timestamp,
        /// Provisioning step, for people.
        phase: Option<String>,
        reason_code: Option<ReasonCode>,
        reason_detail: Option<String>,
        /// Grows with every start; fences older work.
        generation: Generation,
        /// Guard of every update.
        row_version: i64,
        placement_attempts: u32,
        host_id: Option<HostId>,
        /// As the tenant sees it, observed.
        pool_bytes: Option<Bytes>,
        residency: Option<Json<Vec<CardResidency>>>,
        observed_phase: Option<Json<Phase>>,
        observed_at: Option<Timestamp>,
        log_tail: String,
        ttl_at: Option<Timestamp>,
        created_at: Timestamp,
        terminated_at: Option<Timestamp>,
    }
    /// What a host last observed of an instance. Written without touching `row_version`: only reports write it.
    ObservationRow / ObservationRaw {
        instance_id: InstanceId,
        generation: Generation,
        /// `None` keeps what is stored.
        pool_bytes: Option<Bytes>,
        residency: Json<Vec<CardResidency>>,
        observed_phase: Json<Phase>,
        observed_at: Timestamp,
        /// `None` keeps what is stored.
        log_tail: Option<String>,
    }
    InstanceEventRow / InstanceEventRaw {
        id: EventId,
        instance_id: InstanceId,
        tenant_id: TenantId,
        kind: String,
        /// A JSON object.
        detail: Json<serde_json::Value>,
        created_at: Timestamp,
    }
}

/// Which instances a list shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceFilter {
    pub state: Option<State>,
    pub offer_id: Option<OfferId>,
    /// Terminated instances too.
    pub terminated: bool,
}
