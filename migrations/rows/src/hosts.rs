//! Hosts and the tokens with which they join.

use tarn_protocol::hardware::Inventory;
use tarn_protocol::ids::{HostId, JoinTokenId};
use tarn_protocol::units::{BootId, Generation, MonoMillis, Sequence, Timestamp};

use crate::secrets::SecretDigest;
use crate::stored::{Json, rows};

rows! {
    HostRow / HostRaw {
        id: HostId,
        name: String,
        region: String,
        credential_sha256: SecretDigest,
        /// Fencing: grows when the host is fenced or rejoined.
        epoch: Generation,
        boot_id: Option<BootId>,
        /// Highest accepted sequence of `boot_id`.
        report_seq: Sequence,
        /// Receipt of the newest fresh report.
        reported_at: Option<Timestamp>,
        reported_mono_ms: Option<MonoMillis>,
        agent_version: String,
        driver_version: Option<String>,
        inventory: Option<Json<Inventory>>,
        cordoned: bool,
        /// A flag, never a state.
        unreachable_since: Option<Timestamp>,
        quarantine_reason: Option<String>,
        /// Grows with every change of what should run there.
        desired_revision: i64,
        created_at: Timestamp,
    }
    /// What an accepted report says of its host.
    HostReport / HostReportRaw {
        host_id: HostId,
        boot_id: BootId,
        seq: Sequence,
        mono_ms: MonoMillis,
        received_at: Timestamp,
    }
    JoinTokenRow / JoinTokenRaw {
        id: JoinTokenId,
        secret_sha256: SecretDigest,
        region: String,
        created_at: Timestamp,
        expires_at: Timestamp,
        used_at: Option<Timestamp>,
        used_by_host: Option<HostId>,
        /// A retried join with the same nonce gets the same host.
        used_nonce: Option<String>,
    }
}
