//! `/v1/admin/price-book`: appended to, never changed; and only by who has seen what the new price does.

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tarn_billing::exhaustion::Runway;
use tarn_billing::price::InvalidPrice;
use tarn_billing::price_change::{AffectedInstance, Impact};
use tarn_billing::rate::Rate;
use tarn_protocol::ids::{InstanceId, OfferId, SegmentId, TenantId, UserId};
use tarn_protocol::units::Timestamp;
use tarn_rows::offers::PriceRow;
use tarn_store::{Constraint, StoreError};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::money::price_book::{self, AppendPriceError, NewPrice, Preview};
use crate::http::amount::Amount;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::extract::body::Json;
use crate::http::extract::caller::Operator;
use crate::http::extract::page::{Page, PageParams, PageWanted};
use crate::http::instant::Instant;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_prices, append_price)).routes(routes!(preview_price))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"offer_id": "pool-96", "price_per_hour": {"amount": "2.40", "currency": "CNY"}}))]
struct PreviewPriceRequest {
    #[schema(value_type = String)]
    offer_id: OfferId,
    price_per_hour: Amount,
    /// At once, if absent; never in the past.
    effective_from: Option<Instant>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "offer_id": "pool-96", "price_per_hour": {"amount": "2.40", "currency": "CNY"},
    "fingerprint": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
}))]
struct AppendPriceRequest {
    #[schema(value_type = String)]
    offer_id: OfferId,
    price_per_hour: Amount,
    /// As in the preview: at once, if absent; never in the past.
    effective_from: Option<Instant>,
    /// Of the preview of this very price; 409 `changed_meanwhile` if the picture is another one by now.
    fingerprint: String,
}

#[derive(Debug, Serialize, ToSchema)]
struct PriceDocument {
    #[schema(value_type = String, example = "pool-96")]
    offer_id: OfferId,
    /// 1, 2, 3 … for each offer.
    version: i64,
    price_per_hour: Amount,
    effective_from: Instant,
    /// Absent for the prices Tarn came with.
    #[schema(value_type = Option<String>)]
    created_by: Option<UserId>,
    created_at: Instant,
}

impl From<PriceRow> for PriceDocument {
    fn from(row: PriceRow) -> Self {
        Self {
            offer_id: row.sku,
            version: row.version.get(),
            price_per_hour: row.micros_per_hour.hourly().into(),
            effective_from: row.effective_from.into(),
            created_by: row.created_by,
            created_at: row.created_at.into(),
        }
    }
}

/// A running instance that will cost something else.
#[derive(Debug, Serialize, ToSchema)]
struct AffectedInstanceDocument {
    #[schema(value_type = String)]
    instance_id: InstanceId,
    #[schema(value_type = String)]
    segment_id: SegmentId,
    price_per_hour_before: Amount,
    price_per_hour_after: Amount,
    /// Where its charge ends and the next one begins.
    splits_at: Instant,
}

impl From<AffectedInstance> for AffectedInstanceDocument {
    fn from(affected: AffectedInstance) -> Self {
        Self {
            instance_id: affected.instance_id,
            segment_id: affected.segment_id,
            price_per_hour_before: affected.before.hourly().into(),
            price_per_hour_after: affected.after.hourly().into(),
            splits_at: affected.splits_at.into(),
        }
    }
}

/// What a price does to one tenant.
#[derive(Debug, Serialize, ToSchema)]
struct AffectedTenantDocument {
    #[schema(value_type = String)]
    tenant_id: TenantId,
    instances: Vec<AffectedInstanceDocument>,
    /// Of everything that the tenant runs.
    burn_per_hour_before: Amount,
    burn_per_hour_after: Amount,
    /// When its money ends; absent: not within ten years.
    exhausts_at_before: Option<Instant>,
    exhausts_at_after: Option<Instant>,
    /// The new price is what takes it below 24 hours.
    falls_below_24_hours: bool,
}

fn affected(tenant_id: TenantId, impact: Impact, now: Timestamp) -> AffectedTenantDocument {
    let until = |runway| match runway {
        Runway::Until(until) => Some(Instant(until)),
        Runway::Unlimited => None,
    };
    AffectedTenantDocument {
        tenant_id,
        burn_per_hour_before: impact.burn_before.into(),
        burn_per_hour_after: impact.burn_after.into(),
        exhausts_at_before: until(impact.runway_before),
        exhausts_at_after: until(impact.runway_after),
        falls_below_24_hours: impact.falls_short(now),
        instances: impact.instances.into_iter().map(AffectedInstanceDocument::from).collect(),
    }
}

/// What a price would do. Counts are of all that is affected; `items` is one page of it, by tenant.
#[derive(Debug, Serialize, ToSchema)]
struct PricePreviewDocument {
    #[schema(value_type = String, example = "pool-96")]
    offer_id: OfferId,
    /// That the new price will have.
    version: i64,
    /// In force just before it; absent if the offer was not on sale.
    price_per_hour_before: Option<Amount>,
    price_per_hour: Amount,
    /// For a price that takes effect at once, the instant of this preview.
    effective_from: Instant,
    /// Of the picture that this preview shows; the edit takes it. All pages of one preview have the same.
    fingerprint: String,
    tenants: usize,
    instances: usize,
    /// Tenants that the new price takes below 24 hours.
    tenants_below_24_hours: usize,
    items: Vec<AffectedTenantDocument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

fn document(preview: Preview, page: &PageWanted, after: Option<&TenantId>) -> PricePreviewDocument {
    let Preview { before, price, fingerprint, tenants, now } = preview;
    let impacts = || tenants.values();
    let (instances, short) = (
        impacts().map(|impact| impact.instances.len()).sum(),
        impacts().filter(|impact| impact.falls_short(now)).count(),
    );
    let (all, most) = (tenants.len(), page.limit as usize + 1);
    let rows: Vec<_> =
        tenants.into_iter().filter(|(id, _)| after.is_none_or(|after| id > after)).take(most).collect();
    let listed = page.page(rows, |(id, _)| id.to_string(), |(id, impact)| affected(id, impact, now));
    PricePreviewDocument {
        version: price.version.get(),
        price_per_hour_before: before.map(|price| price.rate.hourly().into()),
        price_per_hour: price.rate.hourly().into(),
        effective_from: price.effective_from.into(),
        offer_id: price.offer_id,
        fingerprint,
        tenants: all,
        instances,
        tenants_below_24_hours: short,
        items: listed.items,
        next_cursor: listed.next_cursor,
    }
}

impl From<AppendPriceError> for ApiError {
    fn from(error: AppendPriceError) -> Self {
        match error {
            AppendPriceError::UnknownOffer => Self::not_found(),
            AppendPriceError::Stale => Self::new(
                Code::ChangedMeanwhile,
                format!("{error}; preview it again, and look at what changed"),
            ),
            AppendPriceError::Price(error @ (InvalidPrice::InThePast(_) | InvalidPrice::OutOfOrder(_))) => {
                Self::invalid("/effective_from", error.to_string())
            }
            AppendPriceError::Money(error) => error.into(),
            AppendPriceError::Store(StoreError::Unique(
                Constraint::PriceVersion | Constraint::PriceInstant,
            )) => Self::new(
                Code::ChangedMeanwhile,
                "another price was appended at the same time; preview it again",
            ),
            AppendPriceError::Store(error) => error.into(),
        }
    }
}

fn wanted(offer_id: OfferId, price: &Amount, from: Option<Instant>) -> ApiResult<NewPrice> {
    let rate = Rate::per_hour(price.amount);
    let rate = rate.map_err(|error| ApiError::invalid("/price_per_hour/amount", error.to_string()))?;
    Ok(NewPrice { offer_id, rate, effective_from: from.map(|Instant(at)| at) })
}

/// Every price there was, is and is going to be
#[utoipa::path(get, path = "/v1/admin/price-book", tag = "admin", operation_id = "list_prices",
    security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "All of them, oldest first", body = Page<PriceDocument>)))]
async fn list_prices(
    State(state): State<AppState>,
    _operator: Operator,
) -> ApiResult<Json<Page<PriceDocument>>> {
    let rows = state.store.reader().await?.prices().await?;
    Ok(Json(Page { items: rows.into_iter().map(PriceDocument::from).collect(), next_cursor: None }))
}

/// See what a price would do
///
/// Nothing is written. Says which running instances and tenants it affects, what they pay before and after, where charges split and
/// whose money then lasts less than a day.
#[utoipa::path(post, path = "/v1/admin/price-book/preview", tag = "admin", operation_id = "preview_price",
    params(PageParams), security(("bearer" = []), ("api_key" = ["admin"])), request_body = PreviewPriceRequest,
    responses((status = OK, description = "What it would do", body = PricePreviewDocument)))]
async fn preview_price(
    State(state): State<AppState>,
    _operator: Operator,
    page: PageWanted,
    Json(request): Json<PreviewPriceRequest>,
) -> ApiResult<Json<PricePreviewDocument>> {
    let page = page.of("operator");
    let after = page.after::<TenantId>()?;
    let wanted = wanted(request.offer_id, &request.price_per_hour, request.effective_from)?;
    let now = state.clock.now();
    let preview =
        state.store.snapshot(move |tx| Box::pin(async move { price_book::preview(tx, &wanted, now).await }));
    Ok(Json(document(preview.await?, &page, after.as_ref())))
}

/// Append a price that was previewed; running instances change to it at that instant
#[utoipa::path(post, path = "/v1/admin/price-book", tag = "admin", operation_id = "append_price",
    security(("bearer" = []), ("api_key" = ["admin"])), request_body = AppendPriceRequest,
    responses((status = CREATED, description = "Appended", body = PriceDocument)))]
async fn append_price(
    State(state): State<AppState>,
    operator: Operator,
    Json(request): Json<AppendPriceRequest>,
) -> ApiResult<(StatusCode, Json<PriceDocument>)> {
    let wanted = wanted(request.offer_id, &request.price_per_hour, request.effective_from)?;
    let by = (operator.by(), operator.user_id().clone());
    let row = price_book::append(&state, wanted, request.fingerprint, by).await?;
    Ok((StatusCode::CREATED, Json(row.into())))
}
