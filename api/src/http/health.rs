//! For load balancers and scrapers; open to all, and says nothing about tenants.

use axum::extract::State;
use axum::http::StatusCode;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::error::{ApiError, ApiResult, Code};
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(readyz)).routes(routes!(metrics))
}

/// The process answers
#[utoipa::path(get, path = "/healthz", tag = "service", operation_id = "get_health", security(()),
    responses((status = NO_CONTENT, description = "Alive")))]
async fn healthz() -> StatusCode {
    StatusCode::NO_CONTENT
}

/// The database answers
#[utoipa::path(get, path = "/readyz", tag = "service", operation_id = "get_readiness", security(()),
    responses((status = NO_CONTENT, description = "Ready for requests")))]
async fn readyz(State(state): State<AppState>) -> ApiResult<StatusCode> {
    let no_database = |error| ApiError::new(Code::Unavailable, "no database").caused_by(error);
    let mut tx = state.store.reader().await.map_err(no_database)?;
    tx.offers().await.map_err(no_database)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Counters in the Prometheus text format
#[utoipa::path(get, path = "/metrics", tag = "service", operation_id = "get_metrics", security(()),
    responses((status = OK, description = "OpenMetrics text", body = String, content_type = "text/plain")))]
async fn metrics(State(state): State<AppState>) -> ApiResult<String> {
    state.metrics.text().map_err(ApiError::internal)
}
