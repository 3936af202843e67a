//! `/v1/offers`: what can be rented, at which price, and how much of it there is now.

use axum::extract::State;
use tarn_protocol::ids::OfferId;
use tarn_provisioner::fleet::FleetError;
use tarn_rows::TenantScope;
use tarn_store::Tx;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::fleet;
use crate::app::metering::purse::Purse;
use crate::app::offers::catalog::{self, Listed};
use crate::app::offers::shape::{Shape, Wanted};
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::extract::path::Path;
use crate::http::instances::request::Constraints;
use crate::state::AppState;
use filter::SearchOffers;
use view::{DryRunDocument, OfferDocument, OfferList};

mod filter;
pub(crate) mod render;
mod view;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_offers))
        .routes(routes!(search_offers))
        .routes(routes!(get_offer))
        .routes(routes!(dry_run_offer))
}

impl From<&Constraints> for Wanted {
    fn from(constraints: &Constraints) -> Self {
        Self {
            region: constraints.region.clone(),
            link_class_min: constraints.link_class_min,
            host_id: constraints.host_id.clone(),
            excluded: Vec::new(),
        }
    }
}

impl From<FleetError> for ApiError {
    fn from(error: FleetError) -> Self {
        Self::internal(error)
    }
}

/// Every offer, its price and its availability of this moment; all from one reading of the database.
async fn listed(state: &AppState, scope: &TenantScope, wanted: Wanted) -> ApiResult<Vec<Listed>> {
    let (scope, now) = (scope.clone(), state.clock.now());
    let read = state.store.snapshot(move |tx| {
        Box::pin(async move { read(tx, &scope, &wanted, now).await.map(|(listed, _)| listed) })
    });
    read.await
}

async fn read(
    tx: &mut Tx,
    scope: &TenantScope,
    wanted: &Wanted,
    now: tarn_protocol::units::Timestamp,
) -> ApiResult<(Vec<Listed>, Purse)> {
    let offers = tx.offers().await?;
    let purse = Purse::load(tx, scope, now).await?;
    let snapshot = fleet::snapshot(tx).await?;
    Ok((catalog::list(&offers, &purse.book, &snapshot, wanted, now)?, purse))
}

/// What can be rented
///
/// Availability is a hint of this moment, not a reservation.
#[utoipa::path(get, path = "/v1/offers", tag = "offers", operation_id = "list_offers",
    security(("bearer" = []), ("api_key" = ["offers:read"])),
    responses((status = OK, description = "All offers", body = OfferList)))]
async fn list_offers(
    State(state): State<AppState>,
    caller: TenantCaller<may::OffersRead>,
) -> ApiResult<Json<OfferList>> {
    let items = listed(&state, caller.scope(), Wanted::default()).await?;
    Ok(Json(OfferList { items: items.iter().map(render::offer).collect() }))
}

/// Search offers by condition
#[utoipa::path(post, path = "/v1/offers/search", tag = "offers", operation_id = "search_offers",
    security(("bearer" = []), ("api_key" = ["offers:read"])), request_body = SearchOffers,
    responses((status = OK, description = "Offers for which every condition holds", body = OfferList)))]
async fn search_offers(
    State(state): State<AppState>,
    caller: TenantCaller<may::OffersRead>,
    Json(search): Json<SearchOffers>,
) -> ApiResult<Json<serde_json::Value>> {
    let items = listed(&state, caller.scope(), Wanted::from(&search.constraints)).await?;
    let documents = items.iter().map(|listed| serde_json::to_value(render::offer(listed)));
    let documents = documents.collect::<Result<Vec<_>, _>>().map_err(ApiError::internal)?;
    Ok(Json(serde_json::json!({ "items": search.apply(documents) })))
}

/// One offer
#[utoipa::path(get, path = "/v1/offers/{offer_id}", tag = "offers", operation_id = "get_offer",
    params(("offer_id" = String, Path)), security(("bearer" = []), ("api_key" = ["offers:read"])),
    responses((status = OK, description = "The offer", body = OfferDocument)))]
async fn get_offer(
    State(state): State<AppState>,
    caller: TenantCaller<may::OffersRead>,
    Path(id): Path<OfferId>,
) -> ApiResult<Json<OfferDocument>> {
    let items = listed(&state, caller.scope(), Wanted::default()).await?;
    let found = items.iter().find(|listed| listed.offer.id == id).ok_or_else(ApiError::not_found)?;
    Ok(Json(render::offer(found)))
}

/// What a start would get now
///
/// Placement, price, quota and money are checked as a start checks them; nothing is rented.
#[utoipa::path(post, path = "/v1/offers/{offer_id}/dry-run", tag = "offers", operation_id = "dry_run_offer",
    params(("offer_id" = String, Path)), security(("bearer" = []), ("api_key" = ["offers:read"])),
    request_body = Constraints, responses((status = OK, description = "What it would get", body = DryRunDocument)))]
async fn dry_run_offer(
    State(state): State<AppState>,
    caller: TenantCaller<may::OffersRead>,
    Path(id): Path<OfferId>,
    Json(constraints): Json<Constraints>,
) -> ApiResult<Json<DryRunDocument>> {
    let (scope, now) = (caller.scope().clone(), state.clock.now());
    let wanted = Wanted::from(&constraints);
    let read = state.store.snapshot(move |tx| {
        Box::pin(async move {
            let (items, purse) = read(tx, &scope, &wanted, now).await?;
            let found = items.iter().find(|listed| listed.offer.id == id).ok_or_else(ApiError::not_found)?;
            let charge = Shape::of(&found.offer).charge();
            Ok::<_, ApiError>(render::dry_run(found, &items, charge, &purse, now))
        })
    });
    read.await.map(Json)
}
