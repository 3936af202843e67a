//! Reading instances: list, one, history, output, residency.

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tarn_protocol::ids::{EventId, InstanceId, OfferId};
use tarn_provisioner::lifecycle;
use tarn_rows::TenantScope;
use tarn_rows::instances::{InstanceFilter, InstanceRow};
use tarn_store::{StoreError, Tx};
use utoipa::IntoParams;

use super::render::{self, Renderer};
use super::view::{EventDocument, InstanceDocument, LogDocument, ResidencyDocument};
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::extract::page::{Page, PageParams, PageWanted};
use crate::http::extract::path::Path;
use crate::http::extract::query::Query;
use crate::state::AppState;

#[derive(Debug, Clone, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// Only instances in this state.
    state: Option<String>,
    /// Only instances of this offer.
    #[param(value_type = Option<String>)]
    offer_id: Option<OfferId>,
    /// Terminated ones too.
    #[serde(default)]
    terminated: bool,
}

impl Filter {
    fn rows(self) -> ApiResult<InstanceFilter> {
        let state: Option<lifecycle::State> = match self.state.as_deref().map(str::parse) {
            None => None,
            Some(Ok(state)) => Some(state),
            Some(Err(_)) => return Err(ApiError::invalid("?state", "no such state")),
        };
        let terminated = self.terminated || state == Some(lifecycle::State::Terminated);
        Ok(InstanceFilter { state, offer_id: self.offer_id, terminated })
    }
}

/// The instances of this tenant, oldest first
#[utoipa::path(get, path = "/v1/instances", tag = "instances", operation_id = "list_instances",
    params(PageParams, Filter), security(("bearer" = []), ("api_key" = ["instances:read"])),
    responses((status = OK, description = "One page", body = Page<InstanceDocument>)))]
pub(super) async fn list_instances(
    State(state): State<AppState>,
    caller: TenantCaller<may::InstancesRead>,
    page: PageWanted,
    Query(filter): Query<Filter>,
) -> ApiResult<Json<Page<InstanceDocument>>> {
    let page = page.of(caller.tenant_id().as_str());
    let (after, asked, filter) = (page.after::<InstanceId>()?, page.clone(), filter.rows()?);
    let (scope, now) = (caller.scope().clone(), state.clock.now());
    let documents = state.store.read(move |tx| {
        Box::pin(async move {
            let rows = tx.instances(&scope, &filter, asked.rows(after.as_ref())).await?;
            let mut renderer = Renderer::at(now);
            let mut documents = Vec::with_capacity(rows.len());
            for row in rows {
                documents.push(renderer.instance(tx, &scope, row).await?);
            }
            Ok::<_, StoreError>(documents)
        })
    });
    Ok(Json(page.page(documents.await?, |document| document.id.to_string(), |document| document)))
}

/// One instance
#[utoipa::path(get, path = "/v1/instances/{instance_id}", tag = "instances", operation_id = "get_instance",
    params(("instance_id" = String, Path)), security(("bearer" = []), ("api_key" = ["instances:read"])),
    responses((status = OK, description = "The instance", body = InstanceDocument)))]
pub(super) async fn get_instance(
    State(state): State<AppState>,
    caller: TenantCaller<may::InstancesRead>,
    Path(id): Path<InstanceId>,
) -> ApiResult<Json<InstanceDocument>> {
    document(&state, caller.scope(), id).await.map(Json)
}

/// The document of one of the tenant's instances; 404 for any other id.
pub(super) async fn document(
    state: &AppState,
    scope: &TenantScope,
    id: InstanceId,
) -> ApiResult<InstanceDocument> {
    let (scope, now) = (scope.clone(), state.clock.now());
    let read = state.store.read(move |tx| {
        Box::pin(async move {
            let row = own(tx, &scope, &id).await?;
            Ok::<_, ApiError>(Renderer::at(now).instance(tx, &scope, row).await?)
        })
    });
    read.await
}

pub(super) async fn own(tx: &mut Tx, scope: &TenantScope, id: &InstanceId) -> ApiResult<InstanceRow> {
    tx.instance(scope, id).await?.ok_or_else(ApiError::not_found)
}

async fn row(state: &AppState, scope: &TenantScope, id: InstanceId) -> ApiResult<InstanceRow> {
    let scope = scope.clone();
    state.store.read(move |tx| Box::pin(async move { own(tx, &scope, &id).await })).await
}

/// The history of an instance, oldest first
#[utoipa::path(get, path = "/v1/instances/{instance_id}/events", tag = "instances", operation_id = "list_instance_events",
    params(("instance_id" = String, Path), PageParams), security(("bearer" = []), ("api_key" = ["instances:read"])),
    responses((status = OK, description = "One page", body = Page<EventDocument>)))]
pub(super) async fn list_instance_events(
    State(state): State<AppState>,
    caller: TenantCaller<may::InstancesRead>,
    Path(id): Path<InstanceId>,
    page: PageWanted,
) -> ApiResult<Json<Page<EventDocument>>> {
    let page = page.of(id.as_str());
    let (scope, after, asked) = (caller.scope().clone(), page.after::<EventId>()?, page.clone());
    let read = state.store.read(move |tx| {
        Box::pin(async move {
            own(tx, &scope, &id).await?;
            Ok::<_, ApiError>(tx.instance_events(&scope, &id, asked.rows(after.as_ref())).await?)
        })
    });
    Ok(Json(page.page(read.await?, |row| row.id.to_string(), render::event)))
}

/// The end of an instance's output
///
/// As JSON, or as plain text for `Accept: text/plain`.
#[utoipa::path(get, path = "/v1/instances/{instance_id}/logs", tag = "instances", operation_id = "get_instance_logs",
    params(("instance_id" = String, Path)), security(("bearer" = []), ("api_key" = ["instances:read"])),
    responses((status = OK, description = "The last output", body = LogDocument)))]
pub(super) async fn get_instance_logs(
    State(state): State<AppState>,
    caller: TenantCaller<may::InstancesRead>,
    Path(id): Path<InstanceId>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let row = row(&state, caller.scope(), id).await?;
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepted.starts_with("text/plain") {
        return Ok(row.log_tail.into_response());
    }
    Ok(Json(render::log(row)).into_response())
}

/// Where an instance's bytes are, card by card
#[utoipa::path(get, path = "/v1/instances/{instance_id}/residency", tag = "instances",
    operation_id = "get_instance_residency", params(("instance_id" = String, Path)),
    security(("bearer" = []), ("api_key" = ["instances:read"])),
    responses((status = OK, description = "As last observed", body = ResidencyDocument)))]
pub(super) async fn get_instance_residency(
    State(state): State<AppState>,
    caller: TenantCaller<may::InstancesRead>,
    Path(id): Path<InstanceId>,
) -> ApiResult<Json<ResidencyDocument>> {
    Ok(Json(render::residency(row(&state, caller.scope(), id).await?)))
}
