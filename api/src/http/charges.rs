//! `/v1/charges`: the itemised bill, one line per item and price, made of what is settled so that it equals the ledger to the micro.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use tarn_billing::meter::{Item, Meter};
use tarn_billing::segment::SegmentState;
use tarn_protocol::ids::{GpuUuid, InstanceId, OfferId, SegmentId};
use tarn_rows::segments::ChargeFilter;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::money::charges::{self, Charged};
use crate::http::amount::Amount;
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::extract::page::{Page, PageParams, PageWanted};
use crate::http::extract::path::Path;
use crate::http::extract::query::Query;
use crate::http::instant::Instant;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_charges)).routes(routes!(get_charge))
}

/// What one item has cost so far at one price: `floor(rate_per_hour × seconds / 3600)`, in micro-CNY.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChargeDocument {
    /// The segment: one billable interval at one price.
    #[schema(value_type = String, example = "seg_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: SegmentId,
    /// `gpu` or `disk`.
    #[schema(value_type = String, example = "gpu")]
    item: Item,
    #[schema(value_type = String, example = "ins_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    instance_id: InstanceId,
    /// As it is now.
    #[schema(example = "finetune")]
    instance_label: String,
    /// The SKU of the price book: an offer, `disk-included` or `disk`.
    #[schema(value_type = String, example = "pool-96")]
    offer_id: OfferId,
    /// Of a `gpu`: the one card that is billed; donors never are.
    #[schema(value_type = Option<String>, example = "GPU-8f6e0c7a-6f0c-4d0e-9a57-0c5d5c1b2a3e")]
    primary_gpu_uuid: Option<GpuUuid>,
    /// Of a `disk`: GiB (2^30 bytes).
    size_gib: Option<u32>,
    /// Of the whole item.
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

impl From<Charged> for ChargeDocument {
    fn from(Charged { line, label }: Charged) -> Self {
        let (ended_at, close_reason) = match line.state {
            SegmentState::Open => (None, None),
            SegmentState::Closed { ended_at, reason } => (Some(Instant(ended_at)), Some(reason.as_str())),
        };
        let item = line.meter.item();
        let (primary_gpu_uuid, size_gib) = match line.meter {
            Meter::Card(card) => (Some(card), None),
            Meter::Disk { gib } => (None, Some(gib)),
        };
        Self {
            id: line.segment_id,
            item,
            instance_id: line.instance_id,
            instance_label: label,
            offer_id: line.offer_id,
            primary_gpu_uuid,
            size_gib,
            rate_per_hour: line.rate.hourly().into(),
            price_version: line.price_version.get(),
            started_at: line.opened_at.into(),
            ended_at,
            close_reason,
            seconds: line.seconds.get(),
            amount: line.amount.into(),
        }
    }
}

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ChargeQuery {
    /// Only `gpu` or only `disk`.
    #[param(value_type = Option<String>)]
    item: Option<Item>,
    /// Only this instance.
    #[param(value_type = Option<String>)]
    instance_id: Option<InstanceId>,
    /// Only instances that have this label now.
    label: Option<String>,
    /// Only what has a moment at or after this instant.
    #[param(value_type = Option<String>, format = DateTime)]
    from: Option<Instant>,
    /// Only what has a moment before this instant.
    #[param(value_type = Option<String>, format = DateTime)]
    to: Option<Instant>,
}

impl ChargeQuery {
    fn filter(self) -> ApiResult<ChargeFilter> {
        let every = ChargeFilter::default();
        let filter = ChargeFilter {
            item: self.item,
            instance_id: self.instance_id,
            label: self.label,
            from: self.from.map_or(every.from, |Instant(at)| at),
            to: self.to.map_or(every.to, |Instant(at)| at),
        };
        if filter.from < filter.to { Ok(filter) } else { Err(ApiError::invalid("?to", "must be after from")) }
    }
}

/// What was and is billed, newest first
///
/// Cards and disks are lines of their own; a new price begins a new line.
#[utoipa::path(get, path = "/v1/charges", tag = "money", operation_id = "list_charges", params(PageParams, ChargeQuery),
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "One page", body = Page<ChargeDocument>)))]
async fn list_charges(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    page: PageWanted,
    Query(query): Query<ChargeQuery>,
) -> ApiResult<Json<Page<ChargeDocument>>> {
    let page = page.of(caller.tenant_id().as_str());
    let (after, asked, filter) = (page.after::<SegmentId>()?, page.clone(), query.filter()?);
    let scope = caller.scope().clone();
    let read = state.store.read(move |tx| {
        Box::pin(async move { charges::lines(tx, &scope, &filter, asked.rows(after.as_ref())).await })
    });
    Ok(Json(page.page(read.await?, |charged| charged.line.segment_id.to_string(), ChargeDocument::from)))
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
    let scope = caller.scope().clone();
    let read = state.store.read(move |tx| Box::pin(async move { charges::line(tx, &scope, &id).await }));
    Ok(Json(read.await?.ok_or_else(ApiError::not_found)?.into()))
}
