//! `/v1/refunds`: money given back; `/v1/wallet/topups/{id}/refunds`: unspent cash, by the way on which it came.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tarn_billing::refund::InvalidRefund;
use tarn_protocol::ids::{RefundId, SegmentId, TopUpId};
use tarn_rows::TenantScope;
use tarn_rows::payments::RefundRow;
use tarn_store::{StoreError, Tx};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::act::{Act, Announcement};
use crate::app::metering::settle::SettleFailed;
use crate::app::money::refunds::{self, Order, RefundFailed};
use crate::app::operators::log::{self, By, Deed};
use crate::http::amount::Amount;
use crate::http::envelope::RequestContext;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::extract::once::OnceJson;
use crate::http::extract::page::{Page, PageParams, PageWanted};
use crate::http::extract::path::Path;
use crate::http::instant::Instant;
use crate::http::once::{self, Call};
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_refunds))
        .routes(routes!(get_refund))
        .routes(routes!(refund_top_up))
}

/// Money given back.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct RefundDocument {
    #[schema(value_type = String, example = "rfd_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: RefundId,
    /// Of a charge: it went back into the buckets that had paid.
    #[schema(value_type = Option<String>)]
    charge_id: Option<SegmentId>,
    /// Of cash: it goes back by the way on which it came.
    #[schema(value_type = Option<String>)]
    top_up_id: Option<TopUpId>,
    amount: Amount,
    /// `pending` while the provider has not paid it out; `failed` put the cash back into the wallet.
    #[schema(example = "settled")]
    state: &'static str,
    failure: Option<String>,
    reason: String,
    created_at: Instant,
    resolved_at: Option<Instant>,
}

impl From<RefundRow> for RefundDocument {
    fn from(row: RefundRow) -> Self {
        Self {
            id: row.id,
            charge_id: row.segment_id,
            top_up_id: row.top_up_id,
            amount: row.amount_micros.into(),
            state: row.state.as_str(),
            failure: row.failure,
            reason: row.reason,
            created_at: row.created_at.into(),
            resolved_at: row.resolved_at.map(Instant),
        }
    }
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"amount": {"amount": "20.00", "currency": "CNY"}}))]
struct RefundTopUpRequest {
    /// All that is unspent, if absent.
    amount: Option<Amount>,
}

impl From<RefundFailed> for ApiError {
    fn from(error: RefundFailed) -> Self {
        let detail = error.to_string();
        match error {
            RefundFailed::NoSuchThing => Self::not_found(),
            RefundFailed::NotSettled { .. } => Self::new(Code::WrongState, detail),
            RefundFailed::NotLeft { .. }
            | RefundFailed::OtherProvider { .. }
            | RefundFailed::Refund(InvalidRefund::NotPositive | InvalidRefund::ExceedsCharge { .. }) => {
                Self::new(Code::NotRefundable, detail)
            }
            RefundFailed::Money(error) => error.into(),
            RefundFailed::Settle(error) => error.into(),
            RefundFailed::Provider(error) => error.into(),
            RefundFailed::Store(error) => error.into(),
            RefundFailed::Funding(error) => error.into(),
            error @ (RefundFailed::Refund(_) | RefundFailed::Transfer(_)) => Self::internal(error),
        }
    }
}

impl From<SettleFailed> for ApiError {
    fn from(error: SettleFailed) -> Self {
        match error {
            SettleFailed::Store(error) => error.into(),
            SettleFailed::Money(error) => error.into(),
            error => Self::internal(error),
        }
    }
}

/// What was given back, newest first
#[utoipa::path(get, path = "/v1/refunds", tag = "money", operation_id = "list_refunds", params(PageParams),
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "One page", body = Page<RefundDocument>)))]
async fn list_refunds(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    page: PageWanted,
) -> ApiResult<Json<Page<RefundDocument>>> {
    let page = page.of(caller.tenant_id().as_str());
    let after = page.after::<RefundId>()?;
    let rows = state.store.reader().await?.refunds(caller.scope(), page.rows(after.as_ref())).await?;
    Ok(Json(page.page(rows, |row| row.id.to_string(), RefundDocument::from)))
}

/// One refund
#[utoipa::path(get, path = "/v1/refunds/{refund_id}", tag = "money", operation_id = "get_refund",
    params(("refund_id" = String, Path)), security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "The refund", body = RefundDocument)))]
async fn get_refund(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    Path(id): Path<RefundId>,
) -> ApiResult<Json<RefundDocument>> {
    let row = state.store.reader().await?.refund(caller.scope(), &id).await?;
    Ok(Json(row.ok_or_else(ApiError::not_found)?.into()))
}

/// Get unspent cash of a top-up back
///
/// The cash leaves the wallet at once and is ordered from the payment provider; credit is never paid out. What runs has so much less
/// to run on.
#[utoipa::path(post, path = "/v1/wallet/topups/{top_up_id}/refunds", tag = "money", operation_id = "refund_top_up",
    params(("top_up_id" = String, Path),
        ("Idempotency-Key" = String, Header, description = "A fresh UUID for each refund, the same for a retry")),
    security(("bearer" = []), ("api_key" = ["wallet:write"])), request_body = RefundTopUpRequest,
    responses((status = CREATED, description = "Out of the wallet, ordered from the provider", body = RefundDocument)))]
async fn refund_top_up(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletWrite>,
    Path(id): Path<TopUpId>,
    Extension(context): Extension<Arc<RequestContext>>,
    OnceJson { key, body }: OnceJson<RefundTopUpRequest>,
) -> ApiResult<Response> {
    let order = Order {
        id: RefundId::new(state.clock.now(), state.entropy.bits()),
        amount: body.amount.map(|amount| amount.amount),
        reason: "asked for by the customer".to_owned(),
        by: caller.actor_id().to_owned(),
    };
    let call = Call { scope: caller.scope().clone(), key, status: StatusCode::CREATED };
    pay_back(&state, &context, call, caller.scope().clone(), id, order, None).await
}

/// The operators' log of a refund that one of them gave.
pub(crate) async fn record(
    tx: &mut Tx,
    by: &By,
    act: &Act,
    target: &TenantScope,
    row: &RefundRow,
) -> Result<(), StoreError> {
    let detail = json!({
        "refund_id": row.id, "charge_id": row.segment_id, "top_up_id": row.top_up_id, "amount": row.amount_micros,
        "reason": row.reason,
    });
    log::record(tx, by, act.now, Deed::GiveRefund, (target.tenant_id(), detail)).await
}

/// Takes cash of `target` out of its wallet, once for this call.
pub(crate) async fn pay_back(
    state: &AppState,
    context: &RequestContext,
    call: Call,
    target: TenantScope,
    top_up: TopUpId,
    order: Order,
    operator: Option<By>,
) -> ApiResult<Response> {
    let (act, provider) = (Act::at(state, state.clock.now()), state.payments.name());
    let announcement = Announcement::default();
    let committed = announcement.clone();
    let done = once::answer(state, context, call, move |tx| {
        let mut act = act;
        Box::pin(async move {
            let row = refunds::of_top_up(tx, &mut act, &target, provider, &top_up, &order).await?;
            if let Some(by) = &operator {
                record(tx, by, &act, &target, &row).await?;
            }
            announcement.put(act);
            Ok::<_, RefundFailed>(RefundDocument::from(row))
        })
    });
    let done = done.await?;
    committed.announce(&state.wakeups);
    Ok(done.response)
}
