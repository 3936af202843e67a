//! The HTTP documents between an agent and the control plane, all JSON under `/agent/v1`.
//!
//! | call | sends | gets |
//! |---|---|---|
//! | `POST /agent/v1/join` | [`JoinRequest`] | [`JoinResponse`] |
//! | `POST /agent/v1/report` | [`Report`] | [`ReportAccepted`] |
//! | `GET /agent/v1/desired?after=R&wait_seconds=W` | – | [`Desired`], once its revision is above `R` or the wait ends |
//!
//! All but `join` authenticate with `Authorization: Bearer <credential>`. The agent dials out, pulls desired state and
//! pushes observed state; each side owns its own state and only compares. Reports carry `(boot_id, seq)`; older ones change
//! nothing. Nothing here is a command: desired state is a level, so a lost message delays and never corrupts.

use serde::{Deserialize, Serialize};

use crate::hardware::{Inventory, LinkClass, LinkGrade, LinkProbe};
use crate::ids::{CertificateId, GpuUuid, HostId, InstanceId, LeaseId};
use crate::pool_config::Policy;
use crate::units::{BootId, Bytes, Generation, MonoMillis, Sequence};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// The single-use join token, `tarn_join_…`. A secret: never logged.
    pub token: String,
    pub name: String,
    pub boot_id: BootId,
    pub agent_version: String,
    /// Chosen by the agent before its first try and kept: a retried join with the same nonce gets the same host.
    pub nonce: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JoinResponse {
    pub host_id: HostId,
    /// A secret: the agent stores it in a file of its own, mode 0600.
    pub credential: String,
}

/// What the agent observed. Sent on every change and at least every `report_seconds` of [`Desired`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub boot_id: BootId,
    /// Grows by one with each report of this boot, over agent restarts too.
    pub seq: Sequence,
    pub mono_ms: MonoMillis,
    /// Highest revision of [`Desired`] whose goals were journalled before this report was made; `None` before the first.
    /// An instance missing here proves that nothing is left of it only if its goal's revision is not above this one.
    #[serde(default)]
    pub desired_revision: Option<i64>,
    /// Present in the first report of an agent process and whenever it changed.
    pub inventory: Option<Inventory>,
    /// Probe results since the last accepted report.
    pub probes: Vec<LinkProbe>,
    /// Every instance the host has, whether wanted or not: absence here is the proof that nothing is left of it.
    pub instances: Vec<ObservedInstance>,
    /// Unacknowledged usage evidence, oldest first.
    pub usage: Vec<UsageEvidence>,
    pub telemetry: Vec<GpuTelemetry>,
    /// Xid and other GPU events since the last accepted report.
    pub gpu_events: Vec<GpuEvent>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportAccepted {
    /// Usage evidence up to this number is durable; the agent may forget it.
    pub usage_through: Sequence,
    /// False: this report was older than one already accepted and changed nothing.
    pub fresh: bool,
}

/// What should be on this host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Desired {
    pub revision: i64,
    /// Grows when the host is fenced or rejoined; an agent never acts on a lower one.
    pub host_epoch: Generation,
    pub report_seconds: u32,
    pub instances: Vec<DesiredInstance>,
    /// Ordered pairs to probe again.
    pub probes: Vec<ProbeOrder>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeOrder {
    pub from: GpuUuid,
    pub to: GpuUuid,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DesiredInstance {
    pub instance_id: InstanceId,
    pub lease_id: LeaseId,
    /// Grows with every start; the agent stores the highest before it acts and refuses lower ones.
    pub generation: Generation,
    pub goal: Goal,
    pub spec: InstanceSpec,
    /// Until when the instance is paid, on the host's own clock; `None` before its first evidence.
    pub run_until: Option<RunUntil>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    Running,
    /// Nothing runs; the instance's private directory stays.
    Stopped,
    /// Nothing runs and nothing is left.
    Absent,
}

/// A paid-until instant that the agent enforces by itself while the control plane is away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunUntil {
    pub boot_id: BootId,
    pub mono_ms: MonoMillis,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// Program and arguments of the tenant.
    pub command: Vec<String>,
    pub env: Vec<(String, String)>,
    pub ssh_public_keys: Vec<String>,
    pub primary: GpuUuid,
    pub donors: Vec<DesiredDonor>,
    pub policy: Policy,
    /// For a slice: bytes of the primary that the tenant may use.
    pub cap_bytes: Option<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DesiredDonor {
    pub uuid: GpuUuid,
    pub link_class: LinkClass,
    pub grade: LinkGrade,
    pub read_mb_per_second: u64,
    pub certificate_id: Option<CertificateId>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObservedInstance {
    pub instance_id: InstanceId,
    pub generation: Generation,
    pub phase: Phase,
    /// Pool bytes per card, when the pool is up.
    pub residency: Vec<CardResidency>,
    /// The end of the instance's output, at most 64 KiB, when it changed since the last accepted report.
    pub log_tail: Option<String>,
    /// Last pool total reported to the tenant.
    pub pool_bytes: Option<Bytes>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    /// `step` is for people: `inventory`, `pool_verify`, `broker`, `process` …
    Preparing {
        step: String,
    },
    /// Ready evidence was seen at `ready_mono_ms`.
    Running {
        ready_mono_ms: MonoMillis,
    },
    /// Running with trouble that is ours, not the tenant's.
    Degraded {
        ready_mono_ms: MonoMillis,
        reason: String,
    },
    Stopping,
    Stopped {
        reason: StopReason,
        exit_code: Option<i32>,
    },
    Failed {
        reason: FailReason,
        detail: String,
        exit_code: Option<i32>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    UserRequest,
    /// `run_until` passed.
    BalanceExhausted,
    /// The tenant's command ended by itself with status 0.
    CommandEnded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailReason {
    /// The command could not be started, or ended with an error.
    CommandFailed,
    OutOfMemory,
    PoolVerifyFailed,
    P2pDataMismatch,
    PeerLost,
    GpuFault,
    DriverMismatch,
    HostError,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardResidency {
    /// Nil for the host tier, which is no card.
    pub uuid: GpuUuid,
    pub role: CardRole,
    pub capacity_bytes: Bytes,
    pub used_bytes: Bytes,
    pub quarantined_bytes: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CardRole {
    Primary,
    Donor,
    /// The host's own memory, beyond the pool's total.
    HostTier,
}

/// Proof that an instance ran over one half-open interval of the host's monotonic clock. Intervals of one
/// `(instance, generation, boot)` never overlap, and `seq` names each for ever: sent twice, it counts once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageEvidence {
    pub seq: Sequence,
    pub boot_id: BootId,
    pub instance_id: InstanceId,
    pub generation: Generation,
    pub primary: GpuUuid,
    pub from_mono_ms: MonoMillis,
    pub to_mono_ms: MonoMillis,
    /// Milliseconds within the interval in which the instance could not work for a reason of ours (suspended host, lost donor).
    pub excused_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuTelemetry {
    pub uuid: GpuUuid,
    pub used_bytes: Bytes,
    pub utilization_percent: Option<u32>,
    pub temperature_celsius: Option<u32>,
    pub power_milliwatts: Option<u32>,
    pub responsive: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuEvent {
    pub uuid: GpuUuid,
    pub mono_ms: MonoMillis,
    /// Xid number, or 0 for `detail` alone.
    pub xid: u32,
    pub detail: String,
    /// Somebody computed on a card that is not theirs to compute on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escape: Option<Box<Escape>>,
}

/// A compute process on a card that its tenant did not rent as primary, with what proves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escape {
    /// Whose process it is, or whose donor it was found on when only the card tells; `None` for a process of no tenant.
    pub instance_id: Option<InstanceId>,
    pub identified_by: IdentifiedBy,
    /// On the host.
    pub pid: u32,
    /// As `/proc/<pid>/cgroup` named it.
    pub cgroup: Option<String>,
    /// Clock ticks after boot: with the pid, one process for ever.
    pub start_ticks: Option<u64>,
    /// The most that it was seen to hold on the card.
    pub bytes: Bytes,
    /// How often it was seen; 0 for a life that only the driver's accounting knows.
    pub samples: u32,
    pub first_seen_mono_ms: MonoMillis,
    pub last_seen_mono_ms: MonoMillis,
    pub action: EscapeAction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdentifiedBy {
    Cgroup,
    PidNamespace,
    /// The process was gone: the driver's accounting knows it, and the card was a donor of this instance.
    Card,
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EscapeAction {
    Killed,
    /// Was killed and is still there.
    Survived,
    /// Left alone, to be charged.
    Billed,
    /// Nobody's process, or one that was gone: told to a person.
    Reported,
}
