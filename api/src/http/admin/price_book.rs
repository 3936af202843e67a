//! `/v1/admin/price-book`: appended to, never changed.

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tarn_billing::price::InvalidPrice;
use tarn_billing::rate::Rate;
use tarn_protocol::ids::{OfferId, UserId};
use tarn_rows::offers::PriceRow;
use tarn_store::{Constraint, StoreError};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::money::price_book::{self, AppendPriceError};
use crate::http::amount::Amount;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::extract::body::Json;
use crate::http::extract::caller::Operator;
use crate::http::extract::page::Page;
use crate::http::instant::Instant;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_prices, append_price))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"offer_id": "pool-96", "price_per_hour": {"amount": "2.40", "currency": "CNY"}}))]
struct AppendPriceRequest {
    #[schema(value_type = String)]
    offer_id: OfferId,
    price_per_hour: Amount,
    /// At once, if absent; never in the past.
    effective_from: Option<Instant>,
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

impl From<AppendPriceError> for ApiError {
    fn from(error: AppendPriceError) -> Self {
        match error {
            AppendPriceError::UnknownOffer => Self::not_found(),
            AppendPriceError::Price(error @ (InvalidPrice::InThePast(_) | InvalidPrice::OutOfOrder(_))) => {
                Self::invalid("/effective_from", error.to_string())
            }
            AppendPriceError::Store(error) => error.into(),
        }
    }
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

/// Append a price; running instances change to it at that instant
#[utoipa::path(post, path = "/v1/admin/price-book", tag = "admin", operation_id = "append_price",
    security(("bearer" = []), ("api_key" = ["admin"])), request_body = AppendPriceRequest,
    responses((status = CREATED, description = "Appended", body = PriceDocument)))]
async fn append_price(
    State(state): State<AppState>,
    operator: Operator,
    Json(request): Json<AppendPriceRequest>,
) -> ApiResult<(StatusCode, Json<PriceDocument>)> {
    let rate = Rate::per_hour(request.price_per_hour.amount);
    let rate = rate.map_err(|error| ApiError::invalid("/price_per_hour/amount", error.to_string()))?;
    let from = request.effective_from.map(|Instant(at)| at);
    let row = price_book::append(&state, request.offer_id, rate, from, operator.user_id().clone()).await;
    let row = row.map_err(|error| match error {
        AppendPriceError::Store(StoreError::Unique(Constraint::PriceVersion | Constraint::PriceInstant)) => {
            ApiError::new(Code::ChangedMeanwhile, "another price was appended at the same time")
        }
        error => error.into(),
    })?;
    Ok((StatusCode::CREATED, Json(row.into())))
}
