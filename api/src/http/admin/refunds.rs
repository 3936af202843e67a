//! `/v1/admin/refunds`: an operator gives a charge back, or pays unspent cash out.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;
use tarn_protocol::ids::{RefundId, SegmentId, TenantId, TopUpId};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::act::{Act, Announcement};
use crate::app::money::refunds::{self, Order, RefundFailed};
use crate::http::amount::Amount;
use crate::http::envelope::RequestContext;
use crate::http::error::{ApiError, ApiResult};
use crate::http::extract::caller::Operator;
use crate::http::extract::once::OnceJson;
use crate::http::once::{self, Call};
use crate::http::refunds::{RefundDocument, pay_back, record};
use crate::http::tenants;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(give_refund))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "tenant_id": "ten_01jf3z6v5w9x8y7z6a5b4c3d2e", "charge_id": "seg_01jf3z6v5w9x8y7z6a5b4c3d2e",
    "amount": {"amount": "1.20", "currency": "CNY"}, "reason": "the pool was slow",
}))]
struct GiveRefundRequest {
    #[schema(value_type = String)]
    tenant_id: TenantId,
    /// Back into the buckets that paid this charge. Either this or `top_up_id`.
    #[schema(value_type = Option<String>)]
    charge_id: Option<SegmentId>,
    /// Unspent cash of this top-up, by the way on which it came.
    #[schema(value_type = Option<String>)]
    top_up_id: Option<TopUpId>,
    /// All that is left, if absent.
    amount: Option<Amount>,
    /// Why; the tenant reads it.
    reason: String,
}

/// Give a charge back, or pay cash out
#[utoipa::path(post, path = "/v1/admin/refunds", tag = "admin", operation_id = "give_refund",
    params(("Idempotency-Key" = String, Header, description = "A fresh UUID for each refund, the same for a retry")),
    security(("bearer" = []), ("api_key" = ["admin"])), request_body = GiveRefundRequest,
    responses((status = CREATED, description = "Given back, or ordered from the provider", body = RefundDocument)))]
async fn give_refund(
    State(state): State<AppState>,
    operator: Operator,
    Extension(context): Extension<Arc<RequestContext>>,
    OnceJson { key, body }: OnceJson<GiveRefundRequest>,
) -> ApiResult<Response> {
    let order = Order {
        id: RefundId::new(state.clock.now(), state.entropy.bits()),
        amount: body.amount.map(|amount| amount.amount),
        reason: tenants::name(&body.reason, "/reason")?,
        by: operator.by().credential_id,
    };
    let target = operator.scope_of(body.tenant_id);
    let call = Call { scope: operator.own_scope(), key, status: StatusCode::CREATED };
    let segment = match (body.charge_id, body.top_up_id) {
        (Some(segment), None) => segment,
        (None, Some(top_up)) => {
            return pay_back(&state, &context, call, target, top_up, order, Some(operator.by())).await;
        }
        (None, None) | (Some(_), Some(_)) => {
            return Err(ApiError::invalid("/charge_id", "name a charge or a top-up, and not both"));
        }
    };
    let (act, by) = (Act::at(&state, state.clock.now()), operator.by());
    let announcement = Announcement::default();
    let committed = announcement.clone();
    let done = once::answer(&state, &context, call, move |tx| {
        let mut act = act;
        Box::pin(async move {
            let row = refunds::of_charge(tx, &mut act, &target, &segment, &order).await?;
            record(tx, &by, &act, &target, &row).await?;
            announcement.put(act);
            Ok::<_, RefundFailed>(RefundDocument::from(row))
        })
    });
    let done = done.await?;
    committed.announce(&state.wakeups);
    Ok(done.response)
}
