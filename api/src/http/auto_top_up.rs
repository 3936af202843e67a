//! `/v1/wallet/auto-topup` and `/v1/wallet/payment-method`: cash that comes by itself.

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tarn_rows::payments::{AutoTopUpRow, PaymentMethodRow};
use tarn_store::StoreError;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::act::COLLECT;
use crate::app::money::top_up::{TOP_UP_MAX, TOP_UP_MIN};
use crate::http::amount::Amount;
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::instant::Instant;
use crate::state::AppState;
use crate::till::whole_fen;
use crate::wakeups::Topic;

/// Automatic top-ups in one UTC day, at most.
const PER_DAY_MAX: u32 = 24;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(get_auto_top_up, put_auto_top_up, delete_auto_top_up))
        .routes(routes!(get_payment_method, delete_payment_method))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "threshold": {"amount": "20.00", "currency": "CNY"}, "amount": {"amount": "50.00", "currency": "CNY"}, "per_day_max": 2,
}))]
struct AutoTopUpRequest {
    /// When less than this is available, cash is added.
    threshold: Amount,
    /// How much.
    amount: Amount,
    /// How often in one UTC day, at most.
    #[schema(minimum = 1, maximum = 24)]
    per_day_max: u32,
}

/// The rule by which cash is added.
#[derive(Debug, Serialize, ToSchema)]
struct AutoTopUpDocument {
    threshold: Amount,
    amount: Amount,
    per_day_max: u32,
    /// `false`: it rests until it is set again.
    active: bool,
    /// Why it rests: `declined` after two declines in a row.
    stopped_reason: Option<String>,
    /// Declines in a row.
    declines: u32,
    /// The saved method that is charged; a top-up with `save_method` saves one.
    #[schema(example = "visa ending in 4242")]
    payment_method: Option<String>,
    updated_at: Instant,
}

/// A method of payment that is kept at the provider; nothing of it but its name is kept here.
#[derive(Debug, Serialize, ToSchema)]
struct PaymentMethodDocument {
    provider: String,
    #[schema(example = "visa ending in 4242")]
    label: String,
    created_at: Instant,
}

impl From<PaymentMethodRow> for PaymentMethodDocument {
    fn from(row: PaymentMethodRow) -> Self {
        Self { provider: row.provider, label: row.label, created_at: row.created_at.into() }
    }
}

fn document(rule: AutoTopUpRow, method: Option<PaymentMethodRow>) -> AutoTopUpDocument {
    AutoTopUpDocument {
        threshold: rule.threshold_micros.into(),
        amount: rule.amount_micros.into(),
        per_day_max: rule.per_day_max,
        active: rule.stopped_reason.is_none(),
        stopped_reason: rule.stopped_reason,
        declines: rule.declines,
        payment_method: method.map(|method| method.label),
        updated_at: rule.updated_at.into(),
    }
}

/// The rule for automatic top-ups
#[utoipa::path(get, path = "/v1/wallet/auto-topup", tag = "money", operation_id = "get_auto_top_up",
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "The rule; 404 if there is none", body = AutoTopUpDocument)))]
async fn get_auto_top_up(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
) -> ApiResult<Json<AutoTopUpDocument>> {
    let mut tx = state.store.reader().await?;
    let rule = tx.auto_top_up(caller.scope()).await?.ok_or_else(ApiError::not_found)?;
    let method = tx.payment_method(caller.scope()).await?;
    Ok(Json(document(rule, method)))
}

/// Add cash by itself when little is left
///
/// Charges the saved method, at most so often a day, and rests after two declines in a row.
#[utoipa::path(put, path = "/v1/wallet/auto-topup", tag = "money", operation_id = "put_auto_top_up",
    security(("bearer" = []), ("api_key" = ["wallet:write"])), request_body = AutoTopUpRequest,
    responses((status = OK, description = "The rule, active", body = AutoTopUpDocument)))]
async fn put_auto_top_up(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletWrite>,
    Json(body): Json<AutoTopUpRequest>,
) -> ApiResult<Json<AutoTopUpDocument>> {
    if !(TOP_UP_MIN..=TOP_UP_MAX).contains(&body.amount.amount) || whole_fen(body.amount.amount).is_none() {
        let detail = format!("between {TOP_UP_MIN} and {TOP_UP_MAX}, at most two decimal places");
        return Err(ApiError::invalid("/amount/amount", detail));
    }
    if body.threshold.amount.get() < 0 || body.threshold.amount > TOP_UP_MAX {
        return Err(ApiError::invalid("/threshold/amount", format!("between 0.00 and {TOP_UP_MAX}")));
    }
    if !(1..=PER_DAY_MAX).contains(&body.per_day_max) {
        return Err(ApiError::invalid("/per_day_max", format!("between 1 and {PER_DAY_MAX}")));
    }
    let (now, scope) = (state.clock.now(), caller.scope().clone());
    let rule = AutoTopUpRow {
        tenant_id: scope.tenant_id().clone(),
        threshold_micros: body.threshold.amount,
        amount_micros: body.amount.amount,
        per_day_max: body.per_day_max,
        declines: 0,
        stopped_reason: None,
        created_at: now,
        updated_at: now,
    };
    let method = state.store.write(move |tx| {
        let (scope, rule) = (scope.clone(), rule.clone());
        Box::pin(async move {
            tx.put_auto_top_up(&scope, &rule).await?;
            Ok::<_, StoreError>((rule, tx.payment_method(&scope).await?))
        })
    });
    let (rule, method) = method.await?;
    state.wakeups.wake(&Topic::Worker(COLLECT));
    Ok(Json(document(rule, method)))
}

/// Add no more cash by itself
#[utoipa::path(delete, path = "/v1/wallet/auto-topup", tag = "money", operation_id = "delete_auto_top_up",
    security(("bearer" = []), ("api_key" = ["wallet:write"])),
    responses((status = NO_CONTENT, description = "There is no rule")))]
async fn delete_auto_top_up(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletWrite>,
) -> ApiResult<StatusCode> {
    let scope = caller.scope().clone();
    let gone = state.store.write(move |tx| Box::pin(async move { tx.delete_auto_top_up(&scope).await }));
    gone.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The saved method of payment
#[utoipa::path(get, path = "/v1/wallet/payment-method", tag = "money", operation_id = "get_payment_method",
    security(("bearer" = []), ("api_key" = ["wallet:read"])),
    responses((status = OK, description = "The method; 404 if none is saved", body = PaymentMethodDocument)))]
async fn get_payment_method(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletRead>,
) -> ApiResult<Json<PaymentMethodDocument>> {
    let method = state.store.reader().await?.payment_method(caller.scope()).await?;
    Ok(Json(method.ok_or_else(ApiError::not_found)?.into()))
}

/// Forget the saved method of payment
#[utoipa::path(delete, path = "/v1/wallet/payment-method", tag = "money", operation_id = "delete_payment_method",
    security(("bearer" = []), ("api_key" = ["wallet:write"])),
    responses((status = NO_CONTENT, description = "None is saved")))]
async fn delete_payment_method(
    State(state): State<AppState>,
    caller: TenantCaller<may::WalletWrite>,
) -> ApiResult<StatusCode> {
    let scope = caller.scope().clone();
    let gone = state.store.write(move |tx| Box::pin(async move { tx.forget_payment_method(&scope).await }));
    gone.await?;
    Ok(StatusCode::NO_CONTENT)
}
