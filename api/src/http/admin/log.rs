//! `/v1/admin/log`: what operators did.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tarn_protocol::ids::UserId;
use tarn_rows::operators::DeedRow;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::error::ApiResult;
use crate::http::extract::body::Json;
use crate::http::extract::caller::Operator;
use crate::http::extract::page::{Page, PageParams, PageWanted};
use crate::http::extract::query::Query;
use crate::http::instant::Instant;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_log))
}

/// One thing that an operator did.
#[derive(Debug, Serialize, ToSchema)]
struct DeedDocument {
    /// 1, 2, 3 … without a gap.
    seq: i64,
    /// Absent: the command line, or time itself.
    #[schema(value_type = Option<String>, example = "usr_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    operator_id: Option<UserId>,
    /// With what: a person's session (their user id), an API key, `command_line`, `worker`.
    #[schema(example = "key_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    credential_id: String,
    request_id: Option<String>,
    #[schema(example = "host.cordon")]
    action: String,
    /// Id of what was acted on.
    subject: String,
    #[schema(value_type = Object)]
    detail: Value,
    created_at: Instant,
    /// Of this line and the one before it; `tarn admin verify-log` follows the chain.
    sha256: String,
}

impl From<DeedRow> for DeedDocument {
    fn from(row: DeedRow) -> Self {
        Self {
            seq: row.seq,
            operator_id: row.operator_id,
            credential_id: row.credential_id,
            request_id: row.request_id,
            action: row.action,
            subject: row.subject,
            detail: row.detail.0,
            created_at: row.created_at.into(),
            sha256: row.sha256,
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LogFilter {
    /// Only what was done to this.
    subject: Option<String>,
}

/// What operators did, newest first
#[utoipa::path(get, path = "/v1/admin/log", tag = "admin", operation_id = "list_log", params(LogFilter, PageParams),
    security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "One page", body = Page<DeedDocument>)))]
async fn list_log(
    State(state): State<AppState>,
    _operator: Operator,
    Query(LogFilter { subject }): Query<LogFilter>,
    page: PageWanted,
) -> ApiResult<Json<Page<DeedDocument>>> {
    let page = page.of(&format!("operator {}", subject.as_deref().unwrap_or_default()));
    let below = page.after::<i64>()?.unwrap_or(i64::MAX);
    let mut reader = state.store.reader().await?;
    let rows = match subject {
        Some(subject) => reader.deeds_of_subject(&subject, below, page.limit + 1).await?,
        None => reader.deeds_below(below, page.limit + 1).await?,
    };
    Ok(Json(page.page(rows, |row| row.seq.to_string(), DeedDocument::from)))
}
