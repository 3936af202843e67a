//! `/v1/admin/hosts`: machines with an agent.

use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use serde_json::json;
use tarn_protocol::ids::HostId;
use tarn_provisioner::lifecycle::{DesiredState, ReasonCode};
use tarn_rows::hosts::HostRow;
use tarn_store::StoreError;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::act::Act;
use crate::app::instances::change;
use crate::app::instances::dossier::Dossier;
use crate::app::metering::exhaustion;
use crate::app::operators::log::{self, Deed};
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::Operator;
use crate::http::extract::page::{Page, PageParams, PageWanted};
use crate::http::extract::path::Path;
use crate::http::instant::Instant;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_hosts))
        .routes(routes!(get_host))
        .routes(routes!(cordon_host))
        .routes(routes!(uncordon_host))
        .routes(routes!(drain_host))
}

#[derive(Debug, Serialize, ToSchema)]
struct HostDocument {
    #[schema(value_type = String, example = "hst_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: HostId,
    name: String,
    region: String,
    /// Nothing new is placed here.
    cordoned: bool,
    /// Since when the agent is silent; a flag that moves no workload.
    unreachable_since: Option<Instant>,
    /// Why nothing is placed here until an operator looked, for example `cloned_identity`.
    quarantine_reason: Option<String>,
    epoch: i64,
    boot_id: Option<String>,
    report_seq: u64,
    reported_at: Option<Instant>,
    agent_version: String,
    driver_version: Option<String>,
    desired_revision: i64,
    created_at: Instant,
}

impl From<HostRow> for HostDocument {
    fn from(row: HostRow) -> Self {
        Self {
            id: row.id,
            name: row.name,
            region: row.region,
            cordoned: row.cordoned,
            unreachable_since: row.unreachable_since.map(Into::into),
            quarantine_reason: row.quarantine_reason,
            epoch: row.epoch.get(),
            boot_id: row.boot_id.map(|boot| boot.as_str().to_owned()),
            report_seq: row.report_seq.get(),
            reported_at: row.reported_at.map(Into::into),
            agent_version: row.agent_version,
            driver_version: row.driver_version,
            desired_revision: row.desired_revision,
            created_at: row.created_at.into(),
        }
    }
}

/// Hosts, oldest first
#[utoipa::path(get, path = "/v1/admin/hosts", tag = "admin", operation_id = "list_hosts", params(PageParams),
    security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "One page", body = Page<HostDocument>)))]
async fn list_hosts(
    State(state): State<AppState>,
    _operator: Operator,
    page: PageWanted,
) -> ApiResult<Json<Page<HostDocument>>> {
    let page = page.of("operator");
    let (after, asked) = (page.after::<HostId>()?, page.clone());
    let rows =
        state.store.read(move |tx| Box::pin(async move { tx.hosts(asked.rows(after.as_ref())).await }));
    Ok(Json(page.page(rows.await?, |row| row.id.to_string(), HostDocument::from)))
}

/// One host
#[utoipa::path(get, path = "/v1/admin/hosts/{host_id}", tag = "admin", operation_id = "get_host",
    params(("host_id" = String, Path)), security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "The host", body = HostDocument)))]
async fn get_host(
    State(state): State<AppState>,
    _operator: Operator,
    Path(id): Path<HostId>,
) -> ApiResult<Json<HostDocument>> {
    let row = state.store.read(move |tx| Box::pin(async move { tx.host(&id).await }));
    Ok(Json(row.await?.ok_or_else(ApiError::not_found)?.into()))
}

/// Place nothing new on a host
#[utoipa::path(post, path = "/v1/admin/hosts/{host_id}/cordon", tag = "admin", operation_id = "cordon_host",
    params(("host_id" = String, Path)), security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "Cordoned", body = HostDocument)))]
async fn cordon_host(
    State(state): State<AppState>,
    operator: Operator,
    Path(id): Path<HostId>,
) -> ApiResult<Json<HostDocument>> {
    set_cordoned(&state, operator, id, true).await.map(Json)
}

/// Place on a host again; lifts a quarantine too
#[utoipa::path(post, path = "/v1/admin/hosts/{host_id}/uncordon", tag = "admin", operation_id = "uncordon_host",
    params(("host_id" = String, Path)), security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "Open", body = HostDocument)))]
async fn uncordon_host(
    State(state): State<AppState>,
    operator: Operator,
    Path(id): Path<HostId>,
) -> ApiResult<Json<HostDocument>> {
    set_cordoned(&state, operator, id, false).await.map(Json)
}

async fn set_cordoned(
    state: &AppState,
    operator: Operator,
    id: HostId,
    cordoned: bool,
) -> ApiResult<HostDocument> {
    let now = state.clock.now();
    let row = state.store.write(move |tx| {
        Box::pin(async move {
            let Some(before) = tx.host(&id).await? else { return Ok(None) };
            tx.set_cordoned(&id, cordoned).await?;
            if !cordoned {
                tx.set_host_quarantine(&id, None).await?;
            }
            let deed = if cordoned { Deed::CordonHost } else { Deed::UncordonHost };
            let detail = json!({"cordoned": before.cordoned, "quarantine_reason": before.quarantine_reason});
            log::record(tx, &operator.by(), now, deed, (&id, json!({"before": detail}))).await?;
            tx.host(&id).await
        })
    });
    Ok(row.await?.ok_or_else(ApiError::not_found)?.into())
}

/// Cordon a host and stop what runs there
#[utoipa::path(post, path = "/v1/admin/hosts/{host_id}/drain", tag = "admin", operation_id = "drain_host",
    params(("host_id" = String, Path)), security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = ACCEPTED, description = "Draining", body = HostDocument)))]
async fn drain_host(
    State(state): State<AppState>,
    operator: Operator,
    Path(id): Path<HostId>,
) -> ApiResult<(StatusCode, Json<HostDocument>)> {
    let mut act = Act::at(&state, state.clock.now());
    let (row, act) = state
        .store
        .write(move |tx| {
            Box::pin(async move {
                tx.set_cordoned(&id, true).await?;
                let mut stopped = Vec::new();
                for instance in tx.instances_on_host(&id).await? {
                    let mut dossier = Dossier::load(tx, instance).await?;
                    if dossier.row.desired_state == DesiredState::Running {
                        change::wish(
                            tx,
                            &mut act,
                            &mut dossier,
                            DesiredState::Stopped,
                            ReasonCode::Maintenance,
                        )
                        .await?;
                        stopped.push(dossier.id().clone());
                    }
                }
                exhaustion::rearm_changed(tx, &mut act).await?;
                let row = tx.host(&id).await?;
                if row.is_some() {
                    let detail = json!({"stopped": stopped});
                    log::record(tx, &operator.by(), act.now, Deed::DrainHost, (&id, detail)).await?;
                }
                Ok::<_, StoreError>((row, act))
            })
        })
        .await?;
    act.announce(&state.wakeups);
    Ok((StatusCode::ACCEPTED, Json(row.ok_or_else(ApiError::not_found)?.into())))
}
