//! `/v1/wallet/topups`: cash on its way in, and that came.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tarn_billing::grant::InvalidGrant;
use tarn_protocol::ids::{TopUpId, TransferId};
use tarn_rows::payments::TopUpRow;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::act::{Act, Announcement};
use crate::app::metering::purse::CorruptMoney;
use crate::app::money::payments::open::{self, Order};
use crate::app::money::payments::{PaymentFailed, take_over};
use crate::app::money::top_up::{TOP_UP_MAX, TOP_UP_MIN, TopUpError};
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
use crate::till::{PaymentError, whole_fen};

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list_top_ups, top_up)).routes(routes!(get_top_up))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"amount": {"amount": "50.00", "currency": "CNY"}, "save_method": false}))]
struct TopUpRequest {
    amount: Amount,
    /// Leave the method of payment with the provider, for automatic top-ups.
    #[serde(default)]
    save_method: bool,
}

/// Cash through a payment provider.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct TopUpDocument {
    #[schema(value_type = String, example = "top_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: TopUpId,
    /// What was asked for. What came is in the ledger, under `transfer_id`.
    amount: Amount,
    /// `pending` until the provider says that it has the money; then `settled`, else `failed` or `expired`.
    #[schema(example = "settled")]
    state: &'static str,
    /// `customer`, or `auto` for an automatic one.
    #[schema(example = "customer")]
    cause: &'static str,
    #[schema(example = "local")]
    provider: String,
    /// The provider's own name of the payment.
    external_id: Option<String>,
    /// Where to pay, while it is pending.
    pay_url: Option<String>,
    /// Why it failed.
    failure: Option<String>,
    /// In the ledger, once settled.
    #[schema(value_type = Option<String>)]
    transfer_id: Option<TransferId>,
    created_at: Instant,
    resolved_at: Option<Instant>,
}

impl From<TopUpRow> for TopUpDocument {
    fn from(row: TopUpRow) -> Self {
        Self {
            id: row.id,
            amount: row.amount_micros.into(),
            state: row.state.as_str(),
            cause: row.cause.as_str(),
            provider: row.provider,
            external_id: row.external_id,
            pay_url: row.pay_url,
            failure: row.failure,
            transfer_id: row.transfer_id,
            created_at: row.created_at.into(),
            resolved_at: row.resolved_at.map(Instant),
        }
    }
}

impl From<TopUpError> for ApiError {
    fn from(error: TopUpError) -> Self {
        match error {
            TopUpError::Funding(error) => error.into(),
            TopUpError::Runway(CorruptMoney::Store(error)) | TopUpError::Store(error) => error.into(),
            TopUpError::Runway(error) => Self::internal(error),
            TopUpError::Settle(error) => error.into(),
            TopUpError::Transfer(error) => Self::internal(error),
        }
    }
}

impl From<PaymentError> for ApiError {
    fn from(error: PaymentError) -> Self {
        match error {
            PaymentError::Closed => Self::new(Code::PaymentsClosed, error.to_string()),
            error @ PaymentError::Unavailable(_) => {
                let detail =
                    "nothing is lost and nothing is charged twice; try again with the same Idempotency-Key";
                Self::new(Code::PaymentsUnavailable, detail).retry_after_seconds(5).caused_by(error)
            }
            error @ (PaymentError::Refused(_) | PaymentError::Unknown | PaymentError::Nonsense(_)) => {
                let detail = "nothing was charged; the operator can find the reason under this request id";
                Self::new(Code::PaymentRefused, detail).caused_by(error)
            }
        }
    }
}

impl From<PaymentFailed> for ApiError {
    fn from(error: PaymentFailed) -> Self {
        match error {
            PaymentFailed::Provider(error) => error.into(),
            PaymentFailed::Store(error) | PaymentFailed::Money(CorruptMoney::Store(error)) => error.into(),
            PaymentFailed::TopUp(error) => error.into(),
            error @ (PaymentFailed::NoSuchTopUp(_)
            | PaymentFailed::OtherReference { .. }
            | PaymentFailed::OtherProvider(_)
            | PaymentFailed::Fenced
            | PaymentFailed::Grant(_)
            | PaymentFailed::Money(_)) => Self::internal(error),
        }
    }
}

impl From<InvalidGrant> for ApiError {
    fn from(error: InvalidGrant) -> Self {
        Self::invalid("/amount", error.to_string())
    }
}

/// Cash that came or is on its way, newest first
#[utoipa::path(get, path = "/v1/wallet/topups", tag = "money", operation_id = "list_top_ups", params(PageParams),
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "One page", body = Page<TopUpDocument>)))]
async fn list_top_ups(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
    page: PageWanted,
) -> ApiResult<Json<Page<TopUpDocument>>> {
    let page = page.of(caller.tenant_id().as_str());
    let after = page.after::<TopUpId>()?;
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
    Path(id): Path<TopUpId>,
) -> ApiResult<Json<TopUpDocument>> {
    let row = state.store.reader().await?.top_up(caller.scope(), &id).await?;
    Ok(Json(row.ok_or_else(ApiError::not_found)?.into()))
}

/// Add cash
///
/// With a real provider the answer is `pending` and names a page on which to pay (`pay_url`); the wallet is credited when the
/// provider itself confirms the payment.
#[utoipa::path(post, path = "/v1/wallet/topups", tag = "money", operation_id = "top_up",
    params(("Idempotency-Key" = String, Header, description = "A fresh UUID for each top-up, the same for a retry")),
    security(("bearer" = []), ("api_key" = ["wallet:write"])), request_body = TopUpRequest,
    responses((status = CREATED, description = "Pending at the provider, or settled", body = TopUpDocument)))]
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
    if whole_fen(amount).is_none() {
        return Err(ApiError::invalid("/amount/amount", "at most two decimal places"));
    }
    if !state.payments.takes_payments() {
        return Err(PaymentError::Closed.into());
    }
    let call = Call { scope: caller.scope().clone(), key, status: StatusCode::CREATED };
    if let Some(done) = once::earlier::<TopUpDocument>(&state, &call).await? {
        return Ok(done.response);
    }
    let flight = once::enter(&state, &call)?;
    let order = Order {
        reference: reference_of(&call),
        amount,
        save_method: body.save_method,
        by: caller.actor_id().to_owned(),
    };
    let (row, told) = open::open(&state, &call.scope, order).await?;
    let (scope, act) = (call.scope.clone(), Act::at(&state, state.clock.now()));
    let announcement = Announcement::default();
    let committed = announcement.clone();
    let done = once::answer_within(&state, &context, call, flight, move |tx| {
        let mut act = act;
        Box::pin(async move {
            let row = match told {
                Some(told) => take_over::take_over(tx, &mut act, &scope, &row.id, &told).await?,
                None => row,
            };
            announcement.put(act);
            Ok::<_, PaymentFailed>(TopUpDocument::from(row))
        })
    });
    let done = done.await?;
    committed.announce(&state.wakeups);
    Ok(done.response)
}

/// Named by tenant, key and body, so that a retry of the call finds the same payment, and another body does not.
fn reference_of(call: &Call) -> String {
    let name = format!("{} {} {}", call.scope.tenant_id(), call.key.key, call.key.body_sha256.as_str());
    secret::digest(name).as_str()[..32].to_owned()
}
