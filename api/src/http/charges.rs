//! `/v1/charges`: the itemised bill, one line per segment, made of what is settled so that it equals the ledger to the micro.

use axum::extract::State;
use serde::Serialize;
use tarn_protocol::ids::{GpuUuid, InstanceId, OfferId, SegmentId};
use tarn_rows::segments::SegmentRow;
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
    OpenApiRouter::new().routes(routes!(list_charges)).routes(routes!(get_charge))
}

/// What one segment has cost so far: `floor(rate_per_hour × seconds / 3600)`, in micro-CNY.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChargeDocument {
    /// The segment.
    #[schema(value_type = String, example = "seg_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: SegmentId,
    #[schema(value_type = String, example = "ins_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    instance_id: InstanceId,
    #[schema(value_type = String, example = "pool-96")]
    offer_id: OfferId,
    /// The one card that is billed; donors never are.
    #[schema(value_type = String, example = "GPU-8f6e0c7a-6f0c-4d0e-9a57-0c5d5c1b2a3e")]
    primary_gpu_uuid: GpuUuid,
    rate_per_hour: Amount,
    price_version: i64,
    started_at: Instant,
    /// Absent while it runs.
    ended_at: Option<Instant>,
    #[schema(value_type = Option<String>, example = "user_request")]
    close_reason: Option<&'static str>,
    /// Proven and settled.
    seconds: i64,
    amount: Amount,
}

impl From<SegmentRow> for ChargeDocument {
    fn from(row: SegmentRow) -> Self {
        Self {
            id: row.id,
            instance_id: row.instance_id,
            offer_id: row.sku,
            primary_gpu_uuid: row.meter_gpu_uuid,
            rate_per_hour: row.micros_per_hour.hourly().into(),
            price_version: row.price_version.get(),
            started_at: row.started_at.into(),
            ended_at: row.ended_at.map(Instant),
            close_reason: row.close_reason.map(tarn_billing::segment::CloseReason::as_str),
            seconds: row.settled_seconds.get(),
            amount: row.settled_micros.into(),
        }
    }
}

/// What was and is billed, newest first
#[utoipa::path(get, path = "/v1/charges", tag = "money", operation_id = "list_charges", params(PageParams),
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "One page", body = Page<ChargeDocument>)))]
async fn list_charges(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    page: PageWanted,
) -> ApiResult<Json<Page<ChargeDocument>>> {
    let page = page.of(caller.tenant_id().as_str());
    let after = page.after::<SegmentId>()?;
    let rows = state.store.reader().await?.segments(caller.scope(), page.rows(after.as_ref())).await?;
    Ok(Json(page.page(rows, |row| row.id.to_string(), ChargeDocument::from)))
}

/// One line of the bill
#[utoipa::path(get, path = "/v1/charges/{charge_id}", tag = "money", operation_id = "get_charge",
    params(("charge_id" = String, Path)), security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "The line", body = ChargeDocument)))]
async fn get_charge(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    Path(id): Path<SegmentId>,
) -> ApiResult<Json<ChargeDocument>> {
    let row = state.store.reader().await?.segment(caller.scope(), &id).await?;
    Ok(Json(row.ok_or_else(ApiError::not_found)?.into()))
}
