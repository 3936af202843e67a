//! `/v1/admin/credits`: credit that Tarn gives.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tarn_billing::grant::GrantKind;
use tarn_protocol::ids::{GrantId, TenantId};
use tarn_store::StoreError;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::act::{Act, Announcement};
use crate::app::money::top_up::{self, TOP_UP_MAX, TopUpError};
use crate::http::amount::Amount;
use crate::http::envelope::RequestContext;
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::caller::Operator;
use crate::http::extract::once::OnceJson;
use crate::http::instant::Instant;
use crate::http::once::{self, Call};
use crate::http::tenants;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(give_credit))
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

#[derive(Debug, Clone, Serialize, ToSchema)]
struct CreditDocument {
    #[schema(value_type = String, example = "grn_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: GrantId,
    #[schema(value_type = String)]
    tenant_id: TenantId,
    kind: CreditKind,
    amount: Amount,
    expires_at: Option<Instant>,
    created_at: Instant,
}

enum GiveCreditError {
    UnknownTenant,
    TopUp(TopUpError),
    Store(StoreError),
}

impl From<StoreError> for GiveCreditError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<GiveCreditError> for ApiError {
    fn from(error: GiveCreditError) -> Self {
        match error {
            GiveCreditError::UnknownTenant => Self::not_found(),
            GiveCreditError::TopUp(error) => error.into(),
            GiveCreditError::Store(error) => error.into(),
        }
    }
}

/// Give a tenant credit
#[utoipa::path(post, path = "/v1/admin/credits", tag = "admin", operation_id = "give_credit",
    params(("Idempotency-Key" = String, Header, description = "A fresh UUID for each credit, the same for a retry")),
    security(("bearer" = []), ("api_key" = ["admin"])), request_body = GiveCreditRequest,
    responses((status = CREATED, description = "Given", body = CreditDocument)))]
async fn give_credit(
    State(state): State<AppState>,
    operator: Operator,
    Extension(context): Extension<Arc<RequestContext>>,
    OnceJson { key, body }: OnceJson<GiveCreditRequest>,
) -> ApiResult<Response> {
    let reason = tenants::name(&body.reason, "/reason")?;
    let kind = match body.kind {
        CreditKind::Promo => GrantKind::Promo,
        CreditKind::Sla => GrantKind::Sla,
    };
    if body.amount.amount > TOP_UP_MAX {
        return Err(ApiError::invalid("/amount/amount", format!("at most {TOP_UP_MAX}")));
    }
    let expires_at = body.expires_at.map(|Instant(at)| at);
    let grant = top_up::credit(&state, body.tenant_id.clone(), kind, body.amount.amount, expires_at)?;
    let document = CreditDocument {
        id: grant.id().clone(),
        tenant_id: body.tenant_id.clone(),
        kind: body.kind,
        amount: body.amount,
        expires_at: body.expires_at,
        created_at: grant.terms().granted_at.into(),
    };
    let target = operator.scope_of(body.tenant_id);
    let call = Call { scope: operator.own_scope(), key, status: StatusCode::CREATED };
    let mut act = Act::at(&state, state.clock.now());
    let announcement = Announcement::default();
    let committed = announcement.clone();
    let done = once::answer(&state, &context, call, move |tx| {
        Box::pin(async move {
            tx.tenant(&target).await?.ok_or(GiveCreditError::UnknownTenant)?;
            top_up::put(tx, &mut act, &target, &grant, None, &reason)
                .await
                .map_err(GiveCreditError::TopUp)?;
            announcement.put(act);
            Ok::<_, GiveCreditError>(document)
        })
    });
    let done = done.await?;
    committed.announce(&state.wakeups);
    Ok(done.response)
}
