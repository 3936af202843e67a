//! `/v1/sla-credits`: promises that were not kept, what was credited for them, and what proves it.

use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use tarn_protocol::ids::{GrantId, HostId, IncidentId, InstanceId};
use tarn_rows::sla::IncidentRow;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::amount::Amount;
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::extract::page::{Page, PageParams, PageWanted};
use crate::http::extract::path::Path;
use crate::http::instant::Instant;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_sla_credits)).routes(routes!(get_sla_credit))
}

/// One incident and its credit.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SlaCreditDocument {
    #[schema(value_type = String, example = "inc_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: IncidentId,
    #[schema(value_type = String)]
    instance_id: InstanceId,
    #[schema(value_type = Option<String>)]
    host_id: Option<HostId>,
    /// `host_fault`: the run ended by our fault. `degraded`: it worked, but not as sold. `unreachable`: its host was silent.
    #[schema(example = "unreachable")]
    kind: &'static str,
    from: Instant,
    to: Instant,
    rate_per_hour: Amount,
    /// Of the price for that time, in percent.
    share_percent: u32,
    amount: Amount,
    /// The bucket that was filled.
    #[schema(value_type = Option<String>)]
    grant_id: Option<GrantId>,
    /// The lines of our record that prove it: events, alerts, segments with their boot and proven milliseconds.
    #[schema(value_type = Object)]
    evidence: Value,
    created_at: Instant,
}

impl From<IncidentRow> for SlaCreditDocument {
    fn from(row: IncidentRow) -> Self {
        Self {
            id: row.id,
            instance_id: row.instance_id,
            host_id: row.host_id,
            kind: row.kind.as_str(),
            from: row.from_at.into(),
            to: row.to_at.into(),
            rate_per_hour: row.micros_per_hour.hourly().into(),
            share_percent: row.share_percent,
            amount: row.amount_micros.into(),
            grant_id: row.grant_id,
            evidence: row.evidence.0,
            created_at: row.created_at.into(),
        }
    }
}

/// What was credited for promises that were not kept, newest first
#[utoipa::path(get, path = "/v1/sla-credits", tag = "money", operation_id = "list_sla_credits", params(PageParams),
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "One page", body = Page<SlaCreditDocument>)))]
async fn list_sla_credits(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    page: PageWanted,
) -> ApiResult<Json<Page<SlaCreditDocument>>> {
    let page = page.of(caller.tenant_id().as_str());
    let after = page.after::<IncidentId>()?;
    let rows = state.store.reader().await?.incidents(caller.scope(), page.rows(after.as_ref())).await?;
    Ok(Json(page.page(rows, |row| row.id.to_string(), SlaCreditDocument::from)))
}

/// One incident and its credit
#[utoipa::path(get, path = "/v1/sla-credits/{incident_id}", tag = "money", operation_id = "get_sla_credit",
    params(("incident_id" = String, Path)), security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "The incident", body = SlaCreditDocument)))]
async fn get_sla_credit(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    Path(id): Path<IncidentId>,
) -> ApiResult<Json<SlaCreditDocument>> {
    let row = state.store.reader().await?.incident(caller.scope(), &id).await?;
    Ok(Json(row.ok_or_else(ApiError::not_found)?.into()))
}
