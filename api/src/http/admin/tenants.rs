//! `/v1/admin/tenants`: who there is, and how much each may hold.

use axum::extract::State;
use serde::Deserialize;
use serde_json::json;
use tarn_protocol::ids::TenantId;
use tarn_protocol::units::Bytes;
use tarn_rows::accounts::TenantRow;
use tarn_store::StoreError;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::operators::log::{self, Deed};
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::Operator;
use crate::http::extract::page::{Page, PageParams, PageWanted};
use crate::http::extract::path::Path;
use crate::http::tenants::TenantDocument;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_all_tenants)).routes(routes!(get_any_tenant, set_quota))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"quota_cards": 16, "quota_bytes": 412_316_860_416_u64}))]
struct SetQuotaRequest {
    quota_cards: u32,
    #[schema(maximum = 9_223_372_036_854_775_807_i64)]
    quota_bytes: u64,
}

/// Every tenant
#[utoipa::path(get, path = "/v1/admin/tenants", tag = "admin", operation_id = "list_all_tenants", params(PageParams),
    security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "One page", body = Page<TenantDocument>)))]
async fn list_all_tenants(
    State(state): State<AppState>,
    _operator: Operator,
    page: PageWanted,
) -> ApiResult<Json<Page<TenantDocument>>> {
    let page = page.of("operator");
    let after = page.after::<TenantId>()?;
    let rows = state.store.reader().await?.tenants(page.rows(after.as_ref())).await?;
    Ok(Json(page.page(rows, |row| row.id.to_string(), TenantDocument::from)))
}

/// One tenant
#[utoipa::path(get, path = "/v1/admin/tenants/{tenant_id}", tag = "admin", operation_id = "get_any_tenant",
    params(("tenant_id" = String, Path)), security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "The tenant", body = TenantDocument)))]
async fn get_any_tenant(
    State(state): State<AppState>,
    operator: Operator,
    Path(tenant_id): Path<TenantId>,
) -> ApiResult<Json<TenantDocument>> {
    let row = state.store.reader().await?.tenant(&operator.scope_of(tenant_id)).await?;
    Ok(Json(row.ok_or_else(ApiError::not_found)?.into()))
}

/// Set how many cards and bytes a tenant may hold at once
#[utoipa::path(patch, path = "/v1/admin/tenants/{tenant_id}", tag = "admin", operation_id = "set_quota",
    params(("tenant_id" = String, Path)), security(("bearer" = []), ("api_key" = ["admin"])),
    request_body = SetQuotaRequest, responses((status = OK, description = "Changed", body = TenantDocument)))]
async fn set_quota(
    State(state): State<AppState>,
    operator: Operator,
    Path(tenant_id): Path<TenantId>,
    Json(request): Json<SetQuotaRequest>,
) -> ApiResult<Json<TenantDocument>> {
    if i64::try_from(request.quota_bytes).is_err() {
        return Err(ApiError::invalid("/quota_bytes", "too many bytes"));
    }
    let (scope, cards) = (operator.scope_of(tenant_id), request.quota_cards);
    let (bytes, now) = (Bytes::new(request.quota_bytes), state.clock.now());
    let changed = state.store.write(move |tx| {
        Box::pin(async move {
            let Some(before) = tx.tenant(&scope).await? else { return Ok(None) };
            let was = json!({"quota_cards": before.quota_cards, "quota_bytes": before.quota_bytes});
            let after = TenantRow { quota_cards: cards, quota_bytes: bytes, ..before };
            tx.set_tenant_quota(&after).await?;
            let detail = json!({"before": was, "quota_cards": cards, "quota_bytes": bytes});
            log::record(tx, &operator.by(), now, Deed::SetQuota, (&after.id, detail)).await?;
            Ok::<_, StoreError>(Some(after))
        })
    });
    Ok(Json(changed.await?.ok_or_else(ApiError::not_found)?.into()))
}
