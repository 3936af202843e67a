//! `/v1/admin/alerts`: what an operator should look at.

use axum::extract::State;
use serde::Serialize;
use serde_json::Value;
use tarn_protocol::ids::EventId;
use tarn_rows::alerts::AlertRow;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::http::error::ApiResult;
use crate::http::extract::body::Json;
use crate::http::extract::caller::Operator;
use crate::http::extract::page::{Page, PageParams, PageWanted};
use crate::http::instant::Instant;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_alerts))
}

#[derive(Debug, Serialize, ToSchema)]
struct AlertDocument {
    #[schema(value_type = String)]
    id: EventId,
    /// `host_unreachable`, `termination_unproven`, `cloned_identity`, `orphan`, `stale_write`, `payment_provider_failing`, …
    #[schema(example = "host_unreachable")]
    kind: String,
    /// Id of what it is about.
    subject: String,
    #[schema(value_type = Object)]
    detail: Value,
    created_at: Instant,
    cleared_at: Option<Instant>,
}

impl From<AlertRow> for AlertDocument {
    fn from(row: AlertRow) -> Self {
        Self {
            id: row.id,
            kind: row.kind,
            subject: row.subject,
            detail: row.detail.0,
            created_at: row.created_at.into(),
            cleared_at: row.cleared_at.map(Into::into),
        }
    }
}

/// Alerts, newest first
#[utoipa::path(get, path = "/v1/admin/alerts", tag = "admin", operation_id = "list_alerts", params(PageParams),
    security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "One page", body = Page<AlertDocument>)))]
async fn list_alerts(
    State(state): State<AppState>,
    _operator: Operator,
    page: PageWanted,
) -> ApiResult<Json<Page<AlertDocument>>> {
    let page = page.of("operator");
    let (after, asked) = (page.after::<EventId>()?, page.clone());
    let rows =
        state.store.read(move |tx| Box::pin(async move { tx.alerts(asked.rows(after.as_ref())).await }));
    Ok(Json(page.page(rows.await?, |row| row.id.to_string(), AlertDocument::from)))
}
