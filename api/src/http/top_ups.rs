//! `/v1/wallet/topups`: cash that was added.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tarn_billing::grant::{Grant, InvalidGrant};
use tarn_billing::money::Micros;
use tarn_billing::transfer::InvalidTransfer;
use tarn_protocol::ids::TransferId;
use tarn_rows::ledger::TransferRow;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::act::{Act, Announcement};
use crate::app::metering::purse::CorruptMoney;
use crate::app::money::payments::{Payment, PaymentError, PaymentRequest};
use crate::app::money::top_up::{self, TOP_UP_MAX, TOP_UP_MIN, TopUpError};
use crate::auth::secret;
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
    OpenApiRouter::new().routes(routes!(list_top_ups, top_up)).routes(routes!(get_top_up))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"amount": {"amount": "50.00", "currency": "CNY"}}))]
struct TopUpRequest {
    amount: Amount,
}

/// Cash that was added.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct TopUpDocument {
    /// Of the transfer in the ledger.
    #[schema(value_type = String, example = "trf_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: TransferId,
    amount: Amount,
    #[schema(example = "local")]
    provider: String,
    /// The provider's own name of the payment.
    external_id: String,
    created_at: Instant,
}

impl From<TransferRow> for TopUpDocument {
    fn from(row: TransferRow) -> Self {
        Self {
            id: row.id,
            amount: row.amount_micros.into(),
            provider: row.external_provider.unwrap_or_default(),
            external_id: row.external_id.unwrap_or_default(),
            created_at: row.created_at.into(),
        }
    }
}

impl From<TopUpError> for ApiError {
    fn from(error: TopUpError) -> Self {
        match error {
            TopUpError::Funding(error) => error.into(),
            TopUpError::Runway(CorruptMoney::Store(error)) | TopUpError::Store(error) => error.into(),
            TopUpError::Runway(error) => Self::internal(error),
        }
    }
}

impl From<PaymentError> for ApiError {
    fn from(error: PaymentError) -> Self {
        match error {
            PaymentError::Closed => Self::new(Code::PaymentsClosed, error.to_string()),
        }
    }
}

impl From<InvalidGrant> for ApiError {
    fn from(error: InvalidGrant) -> Self {
        Self::invalid("/amount", error.to_string())
    }
}

/// Cash that was added, newest first
#[utoipa::path(get, path = "/v1/wallet/topups", tag = "money", operation_id = "list_top_ups", params(PageParams),
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "One page", body = Page<TopUpDocument>)))]
async fn list_top_ups(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    page: PageWanted,
) -> ApiResult<Json<Page<TopUpDocument>>> {
    let page = page.of(caller.tenant_id().as_str());
    let after = page.after::<TransferId>()?;
    let rows = state.store.reader().await?.top_ups(caller.scope(), page.rows(after.as_ref())).await?;
    Ok(Json(page.page(rows, |row| row.id.to_string(), TopUpDocument::from)))
}

/// One top-up
#[utoipa::path(get, path = "/v1/wallet/topups/{top_up_id}", tag = "money", operation_id = "get_top_up",
    params(("top_up_id" = String, Path)), security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "The top-up", body = TopUpDocument)))]
async fn get_top_up(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    Path(id): Path<TransferId>,
) -> ApiResult<Json<TopUpDocument>> {
    let row = state.store.reader().await?.top_up(caller.scope(), &id).await?;
    Ok(Json(row.ok_or_else(ApiError::not_found)?.into()))
}

/// Add cash
#[utoipa::path(post, path = "/v1/wallet/topups", tag = "money", operation_id = "top_up",
    params(("Idempotency-Key" = String, Header, description = "A fresh UUID for each top-up, the same for a retry")),
    security(("bearer" = []), ("api_key" = ["wallet:write"])), request_body = TopUpRequest,
    responses((status = CREATED, description = "Paid and credited", body = TopUpDocument)))]
async fn top_up(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletWrite>,
    Extension(context): Extension<Arc<RequestContext>>,
    OnceJson { key, body }: OnceJson<TopUpRequest>,
) -> ApiResult<Response> {
    let amount = body.amount.amount;
    if !(TOP_UP_MIN..=TOP_UP_MAX).contains(&amount) {
        return Err(ApiError::invalid("/amount/amount", format!("between {TOP_UP_MIN} and {TOP_UP_MAX}")));
    }
    let call = Call { scope: caller.scope().clone(), key, status: StatusCode::CREATED };
    if let Some(done) = once::earlier::<TopUpDocument>(&state, &call).await? {
        return Ok(done.response);
    }
    let payment = state.payments.collect(&payment_of(&call, amount)).await?;
    let grant = top_up::cash(&state, caller.tenant_id().clone(), &payment)?;
    let document = document(&grant, &payment).map_err(ApiError::internal)?;
    let (scope, mut act) = (call.scope.clone(), Act::at(&state, state.clock.now()));
    let announcement = Announcement::default();
    let committed = announcement.clone();
    let done = once::answer(&state, &context, call, move |tx| {
        Box::pin(async move {
            top_up::put(tx, &mut act, &scope, &grant, Some(payment), "top-up").await?;
            announcement.put(act);
            Ok::<_, TopUpError>(document)
        })
    });
    let done = done.await?;
    committed.announce(&state.wakeups);
    Ok(done.response)
}

/// Named by tenant and key, so that a retry of the call is a retry of the payment.
fn payment_of(call: &Call, amount: Micros) -> PaymentRequest {
    let name = format!("{} {}", call.scope.tenant_id(), call.key.key);
    PaymentRequest { reference: secret::digest(name).as_str()[..32].to_owned(), amount }
}

fn document(grant: &Grant, payment: &Payment) -> Result<TopUpDocument, InvalidTransfer> {
    Ok(TopUpDocument {
        id: grant.funding()?.id().clone(),
        amount: payment.amount.into(),
        provider: payment.external.provider.clone(),
        external_id: payment.external.id.clone(),
        created_at: grant.terms().granted_at.into(),
    })
}
