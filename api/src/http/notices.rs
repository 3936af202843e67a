//! `/v1/notices`: what a tenant was told about its money.

use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use tarn_protocol::ids::NoticeId;
use tarn_rows::notices::NoticeRow;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::extract::page::{Page, PageParams, PageWanted};
use crate::http::extract::path::Path;
use crate::http::instant::Instant;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_notices)).routes(routes!(get_notice))
}

/// Told once.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NoticeDocument {
    /// Stable: a notice that is delivered again has the same.
    #[schema(value_type = String, example = "ntc_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: NoticeId,
    /// `balance.low_24h`, `balance.low_1h`, `balance.exhausted`, `spend_cap.reached`, `auto_top_up.declined`,
    /// `auto_top_up.limit`, `debt.incurred`, `stopped.still_costs`, `sla.credit`.
    #[serde(rename = "type")]
    #[schema(example = "balance.low_24h")]
    kind: &'static str,
    /// Figures of this type.
    #[schema(value_type = Object)]
    detail: Value,
    created_at: Instant,
}

impl From<NoticeRow> for NoticeDocument {
    fn from(row: NoticeRow) -> Self {
        Self { id: row.id, kind: row.kind.as_str(), detail: row.detail.0, created_at: row.created_at.into() }
    }
}

/// What this tenant was told about its money, newest first
#[utoipa::path(get, path = "/v1/notices", tag = "money", operation_id = "list_notices", params(PageParams),
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "One page", body = Page<NoticeDocument>)))]
async fn list_notices(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    page: PageWanted,
) -> ApiResult<Json<Page<NoticeDocument>>> {
    let page = page.of(caller.tenant_id().as_str());
    let after = page.after::<NoticeId>()?;
    let rows = state.store.reader().await?.notices(caller.scope(), page.rows(after.as_ref())).await?;
    Ok(Json(page.page(rows, |row| row.id.to_string(), NoticeDocument::from)))
}

/// One notice
#[utoipa::path(get, path = "/v1/notices/{notice_id}", tag = "money", operation_id = "get_notice",
    params(("notice_id" = String, Path)), security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "The notice", body = NoticeDocument)))]
async fn get_notice(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    Path(id): Path<NoticeId>,
) -> ApiResult<Json<NoticeDocument>> {
    let row = state.store.reader().await?.notice(caller.scope(), &id).await?;
    Ok(Json(row.ok_or_else(ApiError::not_found)?.into()))
}
