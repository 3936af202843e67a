//! `/v1/admin/gpus`: physical cards, by UUID.

use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tarn_protocol::ids::{GpuUuid, HostId};
use tarn_rows::gpus::GpuRow;
use tarn_store::StoreError;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

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
        .routes(routes!(list_gpus))
        .routes(routes!(quarantine_gpu))
        .routes(routes!(return_gpu))
}

#[derive(Debug, Serialize, ToSchema)]
struct GpuDocument {
    #[schema(value_type = String, example = "GPU-00000001-0000-4000-8000-000000000000")]
    uuid: GpuUuid,
    #[schema(value_type = String)]
    host_id: HostId,
    model: String,
    memory_bytes: u64,
    bar1_bytes: u64,
    pci_bus_id: String,
    minor: u32,
    pcie_switch: Option<String>,
    numa_node: Option<u32>,
    mig_enabled: bool,
    display_active: bool,
    /// The agent's verdict.
    #[schema(value_type = Object, example = json!({"verdict": "ok"}))]
    health: tarn_protocol::hardware::GpuHealth,
    /// By an operator; outlives whatever the agent says.
    quarantined: bool,
    /// In the newest inventory of its host.
    present: bool,
    /// The newest sample.
    #[schema(value_type = Option<Object>)]
    telemetry: Option<tarn_protocol::control::GpuTelemetry>,
    updated_at: Instant,
}

impl From<GpuRow> for GpuDocument {
    fn from(row: GpuRow) -> Self {
        Self {
            uuid: row.uuid,
            host_id: row.host_id,
            model: row.model,
            memory_bytes: row.memory_bytes.get(),
            bar1_bytes: row.bar1_bytes.get(),
            pci_bus_id: row.pci_bus_id,
            minor: row.minor,
            pcie_switch: row.pcie_switch,
            numa_node: row.numa_node,
            mig_enabled: row.mig_enabled,
            display_active: row.display_active,
            health: row.health.0,
            quarantined: row.quarantined,
            present: row.present,
            telemetry: row.telemetry.map(|sample| sample.0),
            updated_at: row.updated_at.into(),
        }
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"reason": "rattling fan"}))]
struct QuarantineGpuRequest {
    /// Why; kept with the certificates that it revokes.
    reason: String,
}

/// Cards, in order of UUID
#[utoipa::path(get, path = "/v1/admin/gpus", tag = "admin", operation_id = "list_gpus", params(PageParams),
    security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "One page", body = Page<GpuDocument>)))]
async fn list_gpus(
    State(state): State<AppState>,
    _operator: Operator,
    page: PageWanted,
) -> ApiResult<Json<Page<GpuDocument>>> {
    let page = page.of("operator");
    let (after, asked) = (page.after::<GpuUuid>()?, page.clone());
    let rows = state.store.read(move |tx| Box::pin(async move { tx.gpus(asked.rows(after.as_ref())).await }));
    Ok(Json(page.page(rows.await?, |row| row.uuid.to_string(), GpuDocument::from)))
}

/// Take a card out of service
///
/// Nothing is placed on it any more and its certificates are revoked; what runs there goes on.
#[utoipa::path(post, path = "/v1/admin/gpus/{gpu_uuid}/quarantine", tag = "admin", operation_id = "quarantine_gpu",
    params(("gpu_uuid" = String, Path)), security(("bearer" = []), ("api_key" = ["admin"])),
    request_body = QuarantineGpuRequest, responses((status = OK, description = "Out of service", body = GpuDocument)))]
async fn quarantine_gpu(
    State(state): State<AppState>,
    operator: Operator,
    Path(uuid): Path<GpuUuid>,
    Json(request): Json<QuarantineGpuRequest>,
) -> ApiResult<Json<GpuDocument>> {
    if !(1..=200).contains(&request.reason.chars().count()) {
        return Err(ApiError::invalid("/reason", "1 to 200 characters"));
    }
    let now = state.clock.now();
    let row = state.store.write(move |tx| {
        Box::pin(async move {
            if tx.set_gpu_quarantined(&uuid, true, now).await? {
                let revoked = tx.revoke_certificates_of_gpu(&uuid, &request.reason, now).await?;
                let detail = json!({"reason": request.reason, "certificates_revoked": revoked});
                log::record(tx, &operator.by(), now, Deed::QuarantineGpu, (&uuid, detail)).await?;
            }
            tx.gpu(&uuid).await
        })
    });
    Ok(Json(row.await?.ok_or_else(ApiError::not_found)?.into()))
}

/// Put a card back into service; its links are to be probed again
#[utoipa::path(post, path = "/v1/admin/gpus/{gpu_uuid}/return", tag = "admin", operation_id = "return_gpu",
    params(("gpu_uuid" = String, Path)), security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "In service", body = GpuDocument)))]
async fn return_gpu(
    State(state): State<AppState>,
    operator: Operator,
    Path(uuid): Path<GpuUuid>,
) -> ApiResult<Json<GpuDocument>> {
    let mut act = crate::app::act::Act::at(&state, state.clock.now());
    let (row, act) = state
        .store
        .write(move |tx| {
            Box::pin(async move {
                tx.set_gpu_quarantined(&uuid, false, act.now).await?;
                let row = tx.gpu(&uuid).await?;
                if let Some(gpu) = &row {
                    crate::app::agents::hardware::order_probes_of(tx, &mut act, gpu).await?;
                    log::record(tx, &operator.by(), act.now, Deed::ReturnGpu, (&uuid, json!({}))).await?;
                }
                Ok::<_, StoreError>((row, act))
            })
        })
        .await?;
    act.announce(&state.wakeups);
    Ok(Json(row.ok_or_else(ApiError::not_found)?.into()))
}
