//! The operators' log: who did what, to what, when, with which credential. One line in the transaction of the deed, or no deed.
//!
//! Lines are numbered without a gap and chained: the SHA-256 of each covers the line before it, so a log that was edited past the
//! store does not verify. The schema refuses updates and deletes besides. Writers take turns on the head of the chain, so write the
//! line last, when every other row is locked.

use std::fmt::Display;

use serde_json::Value;
use tarn_protocol::ids::{RequestId, UserId};
use tarn_protocol::units::Timestamp;
use tarn_rows::Json;
use tarn_rows::operators::DeedRow;
use tarn_store::{Store, StoreError, Tx};

use crate::auth::secret;

/// What operators do, as the log names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Deed {
    AppendPrice,
    RequestCredit,
    GiveCredit,
    ApproveCredit,
    RejectCredit,
    ExpireCredit,
    GiveRefund,
    CreateJoinToken,
    QuarantineGpu,
    ReturnGpu,
    CordonHost,
    UncordonHost,
    DrainHost,
    RevokeCertificate,
    RerunCertificate,
    SetQuota,
    PromoteOperator,
    RemoveOrphan,
}

impl Deed {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AppendPrice => "price.append",
            Self::RequestCredit => "credit.request",
            Self::GiveCredit => "credit.give",
            Self::ApproveCredit => "credit.approve",
            Self::RejectCredit => "credit.reject",
            Self::ExpireCredit => "credit.expire",
            Self::GiveRefund => "refund.give",
            Self::CreateJoinToken => "join_token.create",
            Self::QuarantineGpu => "gpu.quarantine",
            Self::ReturnGpu => "gpu.return",
            Self::CordonHost => "host.cordon",
            Self::UncordonHost => "host.uncordon",
            Self::DrainHost => "host.drain",
            Self::RevokeCertificate => "certificate.revoke",
            Self::RerunCertificate => "certificate.rerun",
            Self::SetQuota => "tenant.set_quota",
            Self::PromoteOperator => "operator.promote",
            Self::RemoveOrphan => "orphan.remove",
        }
    }
}

/// Who acts, and with what.
#[derive(Debug, Clone)]
pub struct By {
    /// `None`: whoever has the data itself, or time.
    pub operator_id: Option<UserId>,
    pub credential_id: String,
    pub request_id: Option<RequestId>,
}

impl By {
    /// `tarn admin`, on the data itself.
    pub fn command_line() -> Self {
        Self { operator_id: None, credential_id: "command_line".to_owned(), request_id: None }
    }

    /// Time alone, through a worker.
    pub fn worker() -> Self {
        Self { operator_id: None, credential_id: "worker".to_owned(), request_id: None }
    }
}

/// Adds a line, in the transaction of the deed.
pub async fn record(
    tx: &mut Tx,
    by: &By,
    at: Timestamp,
    deed: Deed,
    (subject, detail): (impl Display, Value),
) -> Result<(), StoreError> {
    let head = tx.take_log_turn().await?;
    let mut row = DeedRow {
        seq: head.seq + 1,
        operator_id: by.operator_id.clone(),
        credential_id: by.credential_id.clone(),
        request_id: by.request_id.as_ref().map(RequestId::to_string),
        action: deed.as_str().to_owned(),
        subject: subject.to_string(),
        detail: Json(detail),
        created_at: at,
        sha256: String::new(),
    };
    row.sha256 = link(&head.sha256, &row);
    tx.append_deed(&row).await
}

/// The SHA-256 of a line and of the line before it: over a JSON array of all that the line says.
fn link(before: &str, row: &DeedRow) -> String {
    let said = serde_json::json!([
        before,
        row.seq,
        row.created_at.as_micros(),
        row.operator_id,
        row.credential_id,
        row.request_id,
        row.action,
        row.subject,
        row.detail.0,
    ]);
    secret::digest(said.to_string()).as_str().to_owned()
}

/// Why the log does not stand.
#[derive(Debug, thiserror::Error)]
pub enum BrokenLog {
    #[error("line {0} of the operators' log is missing")]
    Missing(i64),
    #[error("line {0} of the operators' log is not what was written")]
    Changed(i64),
    #[error("the operators' log ends at line {found} and had {written}")]
    Cut { found: i64, written: i64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

const LINES_PER_READ: u32 = 500;

/// Reads the whole log and follows its chain; how many lines stand.
pub async fn verify(store: &Store) -> Result<i64, BrokenLog> {
    store.snapshot(|tx| Box::pin(follow(tx))).await
}

async fn follow(tx: &mut Tx) -> Result<i64, BrokenLog> {
    let (mut last, mut sha256) = (0, String::new());
    loop {
        let rows = tx.deeds_above(last, LINES_PER_READ).await?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            if row.seq != last + 1 {
                return Err(BrokenLog::Missing(last + 1));
            }
            if row.sha256 != link(&sha256, &row) {
                return Err(BrokenLog::Changed(row.seq));
            }
            (last, sha256) = (row.seq, row.sha256);
        }
    }
    let head = tx.log_head().await?;
    if (head.seq, &head.sha256) == (last, &sha256) {
        Ok(last)
    } else {
        Err(BrokenLog::Cut { found: last, written: head.seq })
    }
}
