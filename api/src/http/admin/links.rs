//! `/v1/admin/links` and `/v1/admin/certificates`: how cards reach each other, and the dated proofs of it.

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tarn_protocol::hardware::{LinkClass, LinkGrade};
use tarn_protocol::ids::{CertificateId, GpuUuid, HostId};
use tarn_rows::links::{CertificateRow, FleetLinkRow, ProbeOrderRow};
use tarn_store::StoreError;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::act::Act;
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
        .routes(routes!(list_links))
        .routes(routes!(list_certificates))
        .routes(routes!(rerun_certificate))
        .routes(routes!(revoke_certificate))
}

/// The current verdict on one ordered pair.
#[derive(Debug, Serialize, ToSchema)]
struct LinkDocument {
    #[schema(value_type = String)]
    host_id: HostId,
    #[schema(value_type = String)]
    from: GpuUuid,
    #[schema(value_type = String)]
    to: GpuUuid,
    #[schema(value_type = String, example = "nvlink")]
    class: LinkClass,
    #[schema(value_type = String, example = "a")]
    grade: LinkGrade,
    passed: bool,
    read_mb_per_second: u64,
    write_mb_per_second: u64,
    #[schema(value_type = String)]
    certificate_id: CertificateId,
    certified_at: Instant,
}

impl From<FleetLinkRow> for LinkDocument {
    fn from(row: FleetLinkRow) -> Self {
        Self {
            host_id: row.host_id,
            from: row.from_uuid,
            to: row.to_uuid,
            class: row.class,
            grade: row.grade,
            passed: row.passed,
            read_mb_per_second: row.read_mb_per_second,
            write_mb_per_second: row.write_mb_per_second,
            certificate_id: row.id,
            certified_at: row.created_at.into(),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
struct LinkList {
    items: Vec<LinkDocument>,
}

/// Dated proof by data that a link works, or does not.
#[derive(Debug, Serialize, ToSchema)]
struct CertificateDocument {
    #[schema(value_type = String)]
    id: CertificateId,
    #[schema(value_type = String)]
    host_id: HostId,
    #[schema(value_type = String)]
    from: GpuUuid,
    #[schema(value_type = String)]
    to: GpuUuid,
    #[schema(value_type = String, example = "pcie_p2p")]
    class: LinkClass,
    #[schema(value_type = String, example = "b")]
    grade: LinkGrade,
    passed: bool,
    /// Why it failed or was revoked.
    reason: Option<String>,
    read_mb_per_second: u64,
    write_mb_per_second: u64,
    latency_nanos: u64,
    driver_version: String,
    created_at: Instant,
    /// Absent: the current verdict.
    superseded_at: Option<Instant>,
}

impl From<CertificateRow> for CertificateDocument {
    fn from(row: CertificateRow) -> Self {
        Self {
            id: row.id,
            host_id: row.host_id,
            from: row.from_uuid,
            to: row.to_uuid,
            class: row.class,
            grade: row.grade,
            passed: row.passed,
            reason: row.reason,
            read_mb_per_second: row.read_mb_per_second,
            write_mb_per_second: row.write_mb_per_second,
            latency_nanos: row.latency_nanos,
            driver_version: row.driver_version,
            created_at: row.created_at.into(),
            superseded_at: row.superseded_at.map(Into::into),
        }
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"reason": "cable replaced"}))]
struct RevokeCertificateRequest {
    reason: String,
}

/// The current verdict on every ordered pair of cards
#[utoipa::path(get, path = "/v1/admin/links", tag = "admin", operation_id = "list_links",
    security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "All links", body = LinkList)))]
async fn list_links(State(state): State<AppState>, _operator: Operator) -> ApiResult<Json<LinkList>> {
    let rows = state.store.read(move |tx| Box::pin(async move { tx.fleet_links().await })).await?;
    Ok(Json(LinkList { items: rows.into_iter().map(LinkDocument::from).collect() }))
}

/// Every certificate ever, newest first
#[utoipa::path(get, path = "/v1/admin/certificates", tag = "admin", operation_id = "list_certificates",
    params(PageParams), security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "One page", body = Page<CertificateDocument>)))]
async fn list_certificates(
    State(state): State<AppState>,
    _operator: Operator,
    page: PageWanted,
) -> ApiResult<Json<Page<CertificateDocument>>> {
    let page = page.of("operator");
    let (after, asked) = (page.after::<CertificateId>()?, page.clone());
    let rows = state
        .store
        .read(move |tx| Box::pin(async move { tx.certificates(asked.rows(after.as_ref())).await }));
    Ok(Json(page.page(rows.await?, |row| row.id.to_string(), CertificateDocument::from)))
}

/// Probe this pair again
#[utoipa::path(post, path = "/v1/admin/certificates/{certificate_id}/rerun", tag = "admin",
    operation_id = "rerun_certificate", params(("certificate_id" = String, Path)),
    security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = ACCEPTED, description = "Ordered", body = CertificateDocument)))]
async fn rerun_certificate(
    State(state): State<AppState>,
    operator: Operator,
    Path(id): Path<CertificateId>,
) -> ApiResult<(StatusCode, Json<CertificateDocument>)> {
    let mut act = Act::at(&state, state.clock.now());
    let (row, act) = state
        .store
        .write(move |tx| {
            Box::pin(async move {
                let row = tx.certificate(&id).await?;
                if let Some(found) = &row {
                    let order = ProbeOrderRow {
                        from_uuid: found.from_uuid.clone(),
                        to_uuid: found.to_uuid.clone(),
                        host_id: found.host_id.clone(),
                        created_at: act.now,
                    };
                    tx.insert_probe_order(&order).await?;
                    tx.bump_desired_revision(&found.host_id).await?;
                    act.changed_desired(&found.host_id);
                    let pair = json!({"from": found.from_uuid, "to": found.to_uuid});
                    log::record(tx, &operator.by(), act.now, Deed::RerunCertificate, (&id, pair)).await?;
                }
                Ok::<_, StoreError>((row, act))
            })
        })
        .await?;
    act.announce(&state.wakeups);
    Ok((StatusCode::ACCEPTED, Json(row.ok_or_else(ApiError::not_found)?.into())))
}

/// Revoke a certificate: the pair has no verdict until it is probed again
#[utoipa::path(post, path = "/v1/admin/certificates/{certificate_id}/revoke", tag = "admin",
    operation_id = "revoke_certificate", params(("certificate_id" = String, Path)),
    security(("bearer" = []), ("api_key" = ["admin"])), request_body = RevokeCertificateRequest,
    responses((status = OK, description = "Revoked", body = CertificateDocument)))]
async fn revoke_certificate(
    State(state): State<AppState>,
    operator: Operator,
    Path(id): Path<CertificateId>,
    Json(request): Json<RevokeCertificateRequest>,
) -> ApiResult<Json<CertificateDocument>> {
    if !(1..=200).contains(&request.reason.chars().count()) {
        return Err(ApiError::invalid("/reason", "1 to 200 characters"));
    }
    let now = state.clock.now();
    let row = state.store.write(move |tx| {
        Box::pin(async move {
            if tx.revoke_certificate(&id, &request.reason, now).await? {
                let detail = json!({"reason": request.reason});
                log::record(tx, &operator.by(), now, Deed::RevokeCertificate, (&id, detail)).await?;
            }
            tx.certificate(&id).await
        })
    });
    Ok(Json(row.await?.ok_or_else(ApiError::not_found)?.into()))
}
