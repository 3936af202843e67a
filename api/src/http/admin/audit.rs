//! `/v1/admin/audit`: whether every balance and every charge follows from the facts.

use std::collections::BTreeMap;

use axum::extract::State;
use serde::Serialize;
use tarn_billing::audit::{Audited, Difference};
use tarn_billing::money::Micros;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::books::audit::{self, AuditFailed};
use crate::http::amount::Amount;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::extract::body::Json;
use crate::http::extract::caller::Operator;
use crate::http::instant::Instant;
use crate::state::AppState;

/// More than this takes longer than a request may; `tarn admin audit` has no such bound.
const ROWS_MAX: u64 = 2_000_000;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(audit_books))
}

/// What an audit of one instant found.
#[derive(Debug, Serialize, ToSchema)]
struct AuditDocument {
    /// Whether everything follows from the facts.
    consistent: bool,
    /// The first row that does not.
    difference: Option<DifferenceDocument>,
    /// What was looked at; absent with a difference.
    audited: Option<AuditedDocument>,
    /// When the audit began.
    at: Instant,
}

#[derive(Debug, Serialize, ToSchema)]
struct DifferenceDocument {
    #[schema(example = "running_balance")]
    rule: &'static str,
    /// Table and key.
    #[schema(example = "transfer trf_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    row: String,
    #[schema(example = "running balance")]
    what: &'static str,
    expected: String,
    found: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct AuditedDocument {
    accounts: u64,
    transfers: u64,
    entries: u64,
    grants: u64,
    holds_pending: u64,
    segments: u64,
    /// Pieces of evidence counted on segments.
    evidence: u64,
    settled_seconds: i64,
    /// Proven and not in the ledger yet, or beyond what their tenants could pay.
    unsettled_seconds: i64,
    /// Of all accounts of a kind, signed as their entries are; they sum to zero.
    totals: BTreeMap<&'static str, Amount>,
}

impl From<Difference> for DifferenceDocument {
    fn from(found: Difference) -> Self {
        let Difference { rule, row, what, expected, found } = found;
        Self { rule: rule.as_str(), row, what, expected, found }
    }
}

/// An amount or count that no ledger reaches is shown as the largest there is.
fn narrow(wide: i128) -> i64 {
    i64::try_from(wide).unwrap_or(if wide < 0 { i64::MIN } else { i64::MAX })
}

impl From<Audited> for AuditedDocument {
    fn from(audited: Audited) -> Self {
        let totals = audited.totals.iter();
        Self {
            accounts: audited.accounts,
            transfers: audited.transfers,
            entries: audited.entries,
            grants: audited.grants,
            holds_pending: audited.holds_pending,
            segments: audited.segments,
            evidence: audited.evidence,
            settled_seconds: narrow(audited.settled_seconds),
            unsettled_seconds: narrow(audited.unsettled_seconds),
            totals: totals.map(|(kind, sum)| (kind.as_str(), Micros::new(narrow(*sum)).into())).collect(),
        }
    }
}

/// Audit every balance and every charge
#[utoipa::path(get, path = "/v1/admin/audit", tag = "admin", operation_id = "audit_books",
    security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "What was found, in one snapshot of the books", body = AuditDocument)))]
async fn audit_books(State(state): State<AppState>, _operator: Operator) -> ApiResult<Json<AuditDocument>> {
    let Ok(_turn) = state.auditing.try_lock() else {
        return Err(ApiError::new(Code::InUse, "an audit is running; ask again when it has ended"));
    };
    let at = state.clock.now().into();
    let document = match audit::audit(&state.store, Some(ROWS_MAX)).await {
        Ok(audited) => {
            AuditDocument { consistent: true, difference: None, audited: Some(audited.into()), at }
        }
        Err(AuditFailed::Different(found)) => {
            tracing::error!(%found, "the books do not follow from the facts");
            AuditDocument { consistent: false, difference: Some(found.into()), audited: None, at }
        }
        Err(large @ AuditFailed::TooLarge { .. }) => {
            let told = format!("{large}; run `tarn admin audit` beside the database");
            return Err(ApiError::new(Code::WrongState, told));
        }
        Err(AuditFailed::Store(error)) => return Err(error.into()),
    };
    Ok(Json(document))
}
