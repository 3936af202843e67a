//! What operators did, and the credit that they give.

use tarn_billing::grant::GrantKind;
use tarn_billing::money::Micros;
use tarn_protocol::ids::{CreditRequestId, GrantId, TenantId, UserId};
use tarn_protocol::units::Timestamp;

use crate::stored::{Json, rows, words};

words! {
    /// What became of credit that an operator asked for.
    CreditState {
        /// Waits for another operator.
        Pending = "pending",
        /// In the wallet.
        Given = "given",
        Rejected = "rejected",
        /// Nobody decided in time.
        Expired = "expired",
    }
}

rows! {
    /// One line of the operators' log.
    DeedRow / DeedRaw {
        /// 1, 2, 3 … without a gap.
        seq: i64,
        /// `None`: the command line, or time itself.
        operator_id: Option<UserId>,
        credential_id: String,
        request_id: Option<String>,
        action: String,
        /// Id of what was acted on.
        subject: String,
        detail: Json<serde_json::Value>,
        created_at: Timestamp,
        /// Of this line and the one before it.
        sha256: String,
    }
    /// The newest line of the log.
    LogHeadRow / LogHeadRaw {
        seq: i64,
        sha256: String,
    }
    CreditRequestRow / CreditRequestRaw {
        id: CreditRequestId,
        tenant_id: TenantId,
        kind: GrantKind,
        amount_micros: Micros,
        /// Of the credit; `None`: never.
        grant_expires_at: Option<Timestamp>,
        reason: String,
        state: CreditState,
        /// Takes another operator than the one who asked.
        four_eyes: bool,
        requested_by: UserId,
        decided_by: Option<UserId>,
        decision: Option<String>,
        grant_id: Option<GrantId>,
        created_at: Timestamp,
        /// Of the request.
        expires_at: Timestamp,
        decided_at: Option<Timestamp>,
    }
}
