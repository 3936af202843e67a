//! The dispute view: `/v1/admin/instances/{instance_id}/evidence`, and the customer's own without what is not theirs to see.
//!
//! A customer sees when each report was received and which moments of the host's clock it proves, but neither the host's name, nor its
//! boot, nor the number of the report: those are shared with whoever else runs there, and their gaps would tell of others. In their
//! place stands a reference that both views show, so that the two sides of a dispute point at the same report.

use axum::extract::State;
use serde::Serialize;
use tarn_billing::leased::Unbilled;
use tarn_protocol::ids::{GpuUuid, HostId, InstanceId, SegmentId, TransferId};
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::reports::evidence::{self, Payment, Piece, Proof};
use crate::auth::secret;
use crate::http::amount::Amount;
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{Operator, TenantCaller, may};
use crate::http::extract::page::{Page, PageParams, PageWanted};
use crate::http::extract::path::Path;
use crate::http::extract::query::Query;
use crate::http::instant::Instant;
use crate::http::period::PeriodParams;
use crate::state::AppState;

/// The longest period of one view.
const SECONDS_MAX: i64 = 24 * 3600;
const SECONDS_DEFAULT: i64 = 3600;
const REFERENCE_DIGITS: usize = 16;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_evidence)).routes(routes!(get_evidence_of_instance))
}

/// One report of the host that bears on the time.
#[derive(Debug, Serialize, ToSchema)]
struct ProofDocument {
    /// Names this report in a dispute.
    #[schema(example = "5f2b8c1e9a3d7c40")]
    reference: String,
    /// What it says ran, on the host's own clock since its boot.
    from_mono_ms: u64,
    to_mono_ms: u64,
    /// Of which the host itself takes off the end: it was suspended, or a donor was lost.
    excused_ms: u64,
    /// By the control plane, on its clock.
    received_at: Instant,
    /// Operators only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    host_id: Option<HostId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    boot_id: Option<String>,
    /// Of the host's reports of that boot.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
}

/// A transfer that paid for the time, with the seconds of the charge that it paid for.
#[derive(Debug, Serialize, ToSchema)]
struct PaymentDocument {
    #[schema(value_type = String)]
    transfer_id: TransferId,
    amount: Amount,
    #[schema(example = "wallet_promo")]
    account: &'static str,
    first_second: u64,
    /// The first that it no longer pays for.
    end_second: u64,
    posted_at: Instant,
}

/// A stretch of time with one answer to each question.
#[derive(Debug, Serialize, ToSchema)]
struct PieceDocument {
    from: Instant,
    to: Instant,
    milliseconds: i64,
    /// The run of the instance.
    generation: i64,
    billed: bool,
    /// Why it is not on the bill: `starting`, `degraded_by_us`, `unreachable`, `host_fault`, `stop_latency`, `operator`, `pending`,
    /// `rounding`, `unpaid`.
    #[schema(value_type = Option<String>, example = "degraded_by_us")]
    unbilled_reason: Option<Unbilled>,
    /// The charge in whose time it lies; absent outside of charges.
    #[schema(value_type = Option<String>)]
    segment_id: Option<SegmentId>,
    #[schema(value_type = Option<String>)]
    primary_gpu_uuid: Option<GpuUuid>,
    price_version: Option<i64>,
    rate_per_hour: Option<Amount>,
    /// The same stretch on the host's clock.
    from_mono_ms: Option<u64>,
    to_mono_ms: Option<u64>,
    evidence: Vec<ProofDocument>,
    payments: Vec<PaymentDocument>,
}

/// Who looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Operator,
    Tenant,
}

fn proof(proof: Proof, side: Side) -> ProofDocument {
    let named = format!("{} {} {}", proof.host_id, proof.boot_id, proof.seq.get());
    let shown = side == Side::Operator;
    ProofDocument {
        reference: secret::digest(named).as_str()[..REFERENCE_DIGITS].to_owned(),
        from_mono_ms: proof.from_mono_ms.get(),
        to_mono_ms: proof.to_mono_ms.get(),
        excused_ms: proof.excused_ms,
        received_at: proof.received_at.into(),
        host_id: shown.then_some(proof.host_id),
        boot_id: shown.then(|| proof.boot_id.as_str().to_owned()),
        seq: shown.then(|| proof.seq.get()),
    }
}

fn payment(payment: Payment) -> PaymentDocument {
    PaymentDocument {
        transfer_id: payment.transfer_id,
        amount: payment.amount.into(),
        account: payment.from.as_str(),
        first_second: payment.first_second,
        end_second: payment.end_second,
        posted_at: payment.posted_at.into(),
    }
}

fn document(piece: Piece, side: Side) -> PieceDocument {
    let metered = piece.metered;
    let of = metered.as_ref();
    PieceDocument {
        from: piece.from.into(),
        to: piece.to.into(),
        milliseconds: piece.to.micros_since(piece.from) / 1000,
        generation: piece.generation.get(),
        billed: piece.unbilled.is_none(),
        unbilled_reason: piece.unbilled,
        segment_id: of.map(|metered| metered.segment_id.clone()),
        primary_gpu_uuid: of.and_then(|metered| metered.primary.clone()),
        price_version: of.map(|metered| metered.price_version.get()),
        rate_per_hour: of.map(|metered| metered.rate.hourly().into()),
        from_mono_ms: of.map(|metered| metered.from_mono_ms.get()),
        to_mono_ms: of.map(|metered| metered.to_mono_ms.get()),
        evidence: piece.proofs.into_iter().map(|one| proof(one, side)).collect(),
        payments: piece.payments.into_iter().map(payment).collect(),
    }
}

/// The evidence of each second of an instance
///
/// In order of time, of at most 24 hours, of the last one if no period is given: where each stretch went, which reports prove it and
/// when they came, at which price, and which transfers paid for it. Time without cards is left out.
#[utoipa::path(get, path = "/v1/admin/instances/{instance_id}/evidence", tag = "admin",
    operation_id = "get_evidence_of_instance", params(("instance_id" = String, Path), PeriodParams, PageParams),
    security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "One page of stretches", body = Page<PieceDocument>)))]
async fn get_evidence_of_instance(
    State(state): State<AppState>,
    operator: Operator,
    Path(id): Path<InstanceId>,
    Query(asked): Query<PeriodParams>,
    page: PageWanted,
) -> ApiResult<Json<Page<PieceDocument>>> {
    let row = state.store.reader().await?.instance_of_any_tenant(&id).await?;
    let scope = operator.scope_of(row.ok_or_else(ApiError::not_found)?.tenant_id);
    answer(&state, (scope, Side::Operator), id, asked, page).await
}

/// The evidence of each second of your instance
///
/// In order of time, of at most 24 hours, of the last one if no period is given: where each stretch went, which reports prove it and
/// when they came, at which price, and which transfers paid for it. Time without cards is left out.
#[utoipa::path(get, path = "/v1/instances/{instance_id}/evidence", tag = "money", operation_id = "get_evidence",
    params(("instance_id" = String, Path), PeriodParams, PageParams),
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "One page of stretches", body = Page<PieceDocument>)))]
async fn get_evidence(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    Path(id): Path<InstanceId>,
    Query(asked): Query<PeriodParams>,
    page: PageWanted,
) -> ApiResult<Json<Page<PieceDocument>>> {
    answer(&state, (caller.scope().clone(), Side::Tenant), id, asked, page).await
}

async fn answer(
    state: &AppState,
    (scope, side): (TenantScope, Side),
    id: InstanceId,
    asked: PeriodParams,
    page: PageWanted,
) -> ApiResult<Json<Page<PieceDocument>>> {
    let now = state.clock.now();
    let period = asked.period(now, SECONDS_DEFAULT)?;
    if period.to.micros_since(period.from) > SECONDS_MAX * 1_000_000 {
        return Err(ApiError::invalid("?from", "at most 24 hours before `to`"));
    }
    let page = page.of(id.as_str());
    let after = page.after::<i64>()?.map(Timestamp::from_micros);
    let read = state
        .store
        .snapshot(move |tx| Box::pin(async move { evidence::pieces(tx, &scope, &id, period, now).await }));
    let pieces = read.await?.ok_or_else(ApiError::not_found)?;
    let rest = pieces.into_iter().filter(|piece| after.is_none_or(|after| piece.from > after));
    let rows: Vec<Piece> = rest.take(page.limit as usize + 1).collect();
    Ok(Json(page.page(rows, |piece| piece.from.as_micros().to_string(), |piece| document(piece, side))))
}
