//! `/v1/wallet` and `/v1/wallet/topups`.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tarn_billing::account::AccountKind;
use tarn_billing::grant::{Grant, InvalidGrant};
use tarn_billing::money::{Micros, OutOfRange};
use tarn_billing::rate;
use tarn_protocol::ids::GrantId;
use tarn_rows::segments::SegmentRow;
use tarn_rows::wallet::{BalanceRow, GrantRow};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::money::payments::{Payment, PaymentError, PaymentRequest};
use crate::app::money::top_up::{self, TOP_UP_MAX, TOP_UP_MIN};
use crate::app::money::wallet::FundingError;
use crate::auth::secret;
use crate::http::amount::Amount;
use crate::http::envelope::RequestContext;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::extract::once::OnceJson;
use crate::http::instant::Instant;
use crate::http::once::{self, Call};
use crate::state::AppState;
use crate::wakeups::Topic;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(get_wallet)).routes(routes!(top_up))
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
    #[schema(value_type = String, example = "grn_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: GrantId,
    amount: Amount,
    #[schema(example = "local")]
    provider: String,
    /// The provider's own name of the payment.
    external_id: String,
    created_at: Instant,
}

/// What a tenant has. Prepaid: it never falls below zero.
#[derive(Debug, Serialize, ToSchema)]
struct WalletDocument {
    /// Cash and credit, less what is held.
    available: Amount,
    cash: Amount,
    /// Trial, promotional and service credit; drawn before cash.
    credit: Amount,
    /// Reserved for instances that are starting.
    held: Amount,
    /// What the running instances cost together.
    burn_per_hour: Amount,
    /// When the wallet is empty if nothing changes.
    exhausts_at: Option<Instant>,
    grants: Vec<GrantDocument>,
}

/// One bucket of the wallet, in the order in which they were given.
#[derive(Debug, Serialize, ToSchema)]
struct GrantDocument {
    #[schema(value_type = String, example = "grn_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: GrantId,
    #[schema(example = "trial")]
    kind: &'static str,
    granted: Amount,
    remaining: Amount,
    expires_at: Option<Instant>,
    created_at: Instant,
}

impl From<GrantRow> for GrantDocument {
    fn from(row: GrantRow) -> Self {
        Self {
            id: row.id,
            kind: row.kind.as_str(),
            granted: row.granted_micros.into(),
            remaining: row.remaining_micros.into(),
            expires_at: row.expires_at.map(Instant),
            created_at: row.created_at.into(),
        }
    }
}

impl From<FundingError> for ApiError {
    fn from(error: FundingError) -> Self {
        match error {
            FundingError::Store(error) => error.into(),
            error @ (FundingError::Transfer(_) | FundingError::Refused(_)) => Self::internal(error),
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

fn document(
    balances: &[BalanceRow],
    grants: Vec<GrantRow>,
    burning: &[SegmentRow],
) -> Result<WalletDocument, OutOfRange> {
    let of = |kind: AccountKind| {
        let rows = balances.iter().filter(move |row| row.kind == kind);
        Micros::checked_sum(rows.map(|row| row.posted_micros))
    };
    let (cash, credit) = (of(AccountKind::WalletCash)?, of(AccountKind::WalletPromo)?);
    let held = Micros::checked_sum(balances.iter().map(|row| row.held_micros))?;
    Ok(WalletDocument {
        available: cash.checked_add(credit)?.checked_sub(held)?.into(),
        cash: cash.into(),
        credit: credit.into(),
        held: held.into(),
        burn_per_hour: rate::hourly_burn(burning.iter().map(|row| row.micros_per_hour))?.into(),
        exhausts_at: burning.iter().filter_map(|row| row.exhausts_at).min().map(Instant),
        grants: grants.into_iter().map(GrantDocument::from).collect(),
    })
}

/// What this tenant has
#[utoipa::path(get, path = "/v1/wallet", tag = "money", operation_id = "get_wallet",
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "The wallet", body = WalletDocument)))]
async fn get_wallet(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
) -> ApiResult<Json<WalletDocument>> {
    let mut tx = state.store.reader().await?;
    let (balances, grants) = (tx.balances(caller.scope()).await?, tx.grants(caller.scope()).await?);
    let burning = tx.open_segments_of_tenant(caller.scope()).await?;
    Ok(Json(document(&balances, grants, &burning).map_err(ApiError::internal)?))
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
    let scope = call.scope.clone();
    let done = once::answer(&state, &context, call, move |tx| {
        Box::pin(async move {
            let document = topped_up(&grant, &payment);
            top_up::put(tx, &scope, &grant, Some(payment), "top-up").await?;
            Ok::<_, FundingError>(document)
        })
    });
    let done = done.await?;
    state.wakeups.wake(&Topic::Worker("exhaust"));
    Ok(done.response)
}

/// Named by tenant and key, so that a retry of the call is a retry of the payment.
fn payment_of(call: &Call, amount: Micros) -> PaymentRequest {
    let name = format!("{} {}", call.scope.tenant_id(), call.key.key);
    PaymentRequest { reference: secret::digest(name).as_str()[..32].to_owned(), amount }
}

fn topped_up(grant: &Grant, payment: &Payment) -> TopUpDocument {
    TopUpDocument {
        id: grant.id().clone(),
        amount: payment.amount.into(),
        provider: payment.external.provider.clone(),
        external_id: payment.external.id.clone(),
        created_at: grant.terms().granted_at.into(),
    }
}
