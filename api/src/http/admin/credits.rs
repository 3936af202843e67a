//! `/v1/admin/credits`: credit that Tarn gives, with a reason, and with a second operator where the service wants one.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tarn_billing::grant::GrantKind;
use tarn_protocol::ids::{CreditRequestId, GrantId, TenantId, UserId};
use tarn_rows::operators::{CreditRequestRow, CreditState};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::act::{Act, Announcement};
use crate::app::money::top_up::TOP_UP_MAX;
use crate::app::operators::credits::{self, CreditError, CreditOrder};
use crate::http::amount::Amount;
use crate::http::envelope::RequestContext;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::extract::body::Json;
use crate::http::extract::caller::Operator;
use crate::http::extract::once::{OnceEmpty, OnceJson};
use crate::http::extract::page::{Page, PageParams, PageWanted};
use crate::http::extract::path::Path;
use crate::http::extract::query::Query;
use crate::http::instant::Instant;
use crate::http::once::{self, Call};
use crate::http::tenants;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_credits, give_credit))
        .routes(routes!(get_credit))
        .routes(routes!(approve_credit))
        .routes(routes!(reject_credit))
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum CreditKind {
    Promo,
    /// For a broken promise of ours.
    Sla,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "tenant_id": "ten_01jf3z6v5w9x8y7z6a5b4c3d2e", "kind": "promo",
    "amount": {"amount": "20.00", "currency": "CNY"}, "reason": "welcome back",
}))]
struct GiveCreditRequest {
    #[schema(value_type = String)]
    tenant_id: TenantId,
    kind: CreditKind,
    amount: Amount,
    /// Never, if absent.
    expires_at: Option<Instant>,
    /// Why; the tenant reads it in the ledger.
    reason: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"reason": "given twice already"}))]
struct RejectCreditRequest {
    /// Why; kept with the request.
    reason: String,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
struct CreditDocument {
    #[schema(value_type = String, example = "crq_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: CreditRequestId,
    #[schema(value_type = String)]
    tenant_id: TenantId,
    #[schema(value_type = CreditKind)]
    kind: &'static str,
    amount: Amount,
    /// Of the credit; absent: never.
    expires_at: Option<Instant>,
    reason: String,
    /// `pending`: waits for another operator until `decide_by`. `given`: in the wallet. `rejected`, `expired`: never was.
    #[schema(value_type = String, example = "given")]
    state: CreditState,
    /// Takes another operator than `requested_by`.
    four_eyes: bool,
    #[schema(value_type = String)]
    requested_by: UserId,
    /// Who gave, approved or rejected it.
    #[schema(value_type = Option<String>)]
    decided_by: Option<UserId>,
    /// Why it was rejected.
    decision: Option<String>,
    /// The bucket in the wallet.
    #[schema(value_type = Option<String>, example = "grn_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    grant_id: Option<GrantId>,
    created_at: Instant,
    decide_by: Instant,
    decided_at: Option<Instant>,
}

impl From<CreditRequestRow> for CreditDocument {
    fn from(row: CreditRequestRow) -> Self {
        Self {
            id: row.id,
            tenant_id: row.tenant_id,
            kind: row.kind.as_str(),
            amount: row.amount_micros.into(),
            expires_at: row.grant_expires_at.map(Instant),
            reason: row.reason,
            state: row.state,
            four_eyes: row.four_eyes,
            requested_by: row.requested_by,
            decided_by: row.decided_by,
            decision: row.decision,
            grant_id: row.grant_id,
            created_at: row.created_at.into(),
            decide_by: row.expires_at.into(),
            decided_at: row.decided_at.map(Instant),
        }
    }
}

impl From<CreditError> for ApiError {
    fn from(error: CreditError) -> Self {
        let detail = error.to_string();
        match error {
            CreditError::UnknownTenant | CreditError::UnknownRequest => Self::not_found(),
            CreditError::OwnRequest => Self::new(Code::Forbidden, detail),
            CreditError::Decided(_) | CreditError::TooLate => Self::new(Code::WrongState, detail),
            CreditError::Grant(error) => error.into(),
            CreditError::Amount(error) => Self::internal(error),
            CreditError::TopUp(error) => error.into(),
            CreditError::Store(error) => error.into(),
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct CreditFilter {
    #[param(value_type = Option<String>, example = "pending")]
    state: Option<CreditState>,
    #[param(value_type = Option<String>)]
    tenant_id: Option<TenantId>,
}

/// Credit that operators asked for and gave, newest first
#[utoipa::path(get, path = "/v1/admin/credits", tag = "admin", operation_id = "list_credits",
    params(CreditFilter, PageParams), security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "One page", body = Page<CreditDocument>)))]
async fn list_credits(
    State(state): State<AppState>,
    _operator: Operator,
    Query(filter): Query<CreditFilter>,
    page: PageWanted,
) -> ApiResult<Json<Page<CreditDocument>>> {
    let page = page.of(&format!("operator {filter:?}"));
    let after = page.after::<CreditRequestId>()?;
    let mut reader = state.store.reader().await?;
    let rows =
        reader.credit_requests(filter.state, filter.tenant_id.as_ref(), page.rows(after.as_ref())).await?;
    Ok(Json(page.page(rows, |row| row.id.to_string(), CreditDocument::from)))
}

/// One credit, with who asked for it and who decided
#[utoipa::path(get, path = "/v1/admin/credits/{credit_id}", tag = "admin", operation_id = "get_credit",
    params(("credit_id" = String, Path)), security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "The credit", body = CreditDocument)))]
async fn get_credit(
    State(state): State<AppState>,
    _operator: Operator,
    Path(id): Path<CreditRequestId>,
) -> ApiResult<Json<CreditDocument>> {
    let row = state.store.reader().await?.credit_request(&id).await?;
    Ok(Json(row.ok_or_else(ApiError::not_found)?.into()))
}

/// Give a tenant credit
///
/// At or below what the service lets one operator give alone in a day, it is `given` at once. Above, it is `pending` and another
/// operator approves or rejects it.
#[utoipa::path(post, path = "/v1/admin/credits", tag = "admin", operation_id = "give_credit",
    params(("Idempotency-Key" = String, Header, description = "A fresh UUID for each credit, the same for a retry")),
    security(("bearer" = []), ("api_key" = ["admin"])), request_body = GiveCreditRequest,
    responses((status = CREATED, description = "Given, or waiting", body = CreditDocument)))]
async fn give_credit(
    State(state): State<AppState>,
    operator: Operator,
    Extension(context): Extension<Arc<RequestContext>>,
    OnceJson { key, body }: OnceJson<GiveCreditRequest>,
) -> ApiResult<Response> {
    if body.amount.amount > TOP_UP_MAX {
        return Err(ApiError::invalid("/amount/amount", format!("at most {TOP_UP_MAX}")));
    }
    let order = CreditOrder {
        tenant_id: body.tenant_id,
        kind: match body.kind {
            CreditKind::Promo => GrantKind::Promo,
            CreditKind::Sla => GrantKind::Sla,
        },
        amount: body.amount.amount,
        expires_at: body.expires_at.map(|Instant(at)| at),
        reason: tenants::name(&body.reason, "/reason")?,
    };
    let call = Call { scope: operator.own_scope(), key, status: StatusCode::CREATED };
    let (rules, act) = (state.config.credits, Act::at(&state, state.clock.now()));
    let announcement = Announcement::default();
    let committed = announcement.clone();
    let done = once::answer(&state, &context, call, move |tx| {
        Box::pin(async move {
            let mut act = act.clone();
            let by = (&operator.by(), operator.user_id());
            let row = credits::order(tx, &mut act, rules, by, &order).await?;
            announcement.put(act);
            Ok::<_, CreditError>(CreditDocument::from(row))
        })
    });
    let done = done.await?;
    committed.announce(&state.wakeups);
    Ok(done.response)
}

/// Approve credit that another operator asked for: it is in the wallet at once
#[utoipa::path(post, path = "/v1/admin/credits/{credit_id}/approve", tag = "admin", operation_id = "approve_credit",
    params(("credit_id" = String, Path),
        ("Idempotency-Key" = String, Header, description = "A fresh UUID for each approval, the same for a retry")),
    security(("bearer" = []), ("api_key" = ["admin"])),
    responses((status = OK, description = "Given", body = CreditDocument)))]
async fn approve_credit(
    State(state): State<AppState>,
    operator: Operator,
    Extension(context): Extension<Arc<RequestContext>>,
    Path(id): Path<CreditRequestId>,
    OnceEmpty(key): OnceEmpty,
) -> ApiResult<Response> {
    let call = Call { scope: operator.own_scope(), key, status: StatusCode::OK };
    let act = Act::at(&state, state.clock.now());
    let announcement = Announcement::default();
    let committed = announcement.clone();
    let done = once::answer(&state, &context, call, move |tx| {
        Box::pin(async move {
            let mut act = act.clone();
            let by = (&operator.by(), operator.user_id());
            let row = credits::approve(tx, &mut act, by, &id).await?;
            announcement.put(act);
            Ok::<_, CreditError>(CreditDocument::from(row))
        })
    });
    let done = done.await?;
    committed.announce(&state.wakeups);
    Ok(done.response)
}

/// Reject credit that waits; whoever asked for it may take it back so
#[utoipa::path(post, path = "/v1/admin/credits/{credit_id}/reject", tag = "admin", operation_id = "reject_credit",
    params(("credit_id" = String, Path)), security(("bearer" = []), ("api_key" = ["admin"])),
    request_body = RejectCreditRequest,
    responses((status = OK, description = "Rejected", body = CreditDocument)))]
async fn reject_credit(
    State(state): State<AppState>,
    operator: Operator,
    Path(id): Path<CreditRequestId>,
    Json(request): Json<RejectCreditRequest>,
) -> ApiResult<Json<CreditDocument>> {
    let why = tenants::name(&request.reason, "/reason")?;
    let now = state.clock.now();
    let row = state.store.write(move |tx| {
        Box::pin(
            async move { credits::reject(tx, now, (&operator.by(), operator.user_id()), &id, &why).await },
        )
    });
    Ok(Json(row.await?.into()))
}
