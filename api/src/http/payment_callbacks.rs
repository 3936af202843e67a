//! `/v1/payments/callbacks/{provider}`: where a payment provider says that something happened.
//!
//! The signature proves who speaks; what is said is not used beyond the name of a payment. What became of that payment is asked of
//! the provider, so a callback that is repeated, late, out of order or wrong in its amounts changes nothing that asking would not.

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::act::COLLECT;
use crate::app::money::payments::{confirm, watch};
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::extract::path::Path;
use crate::state::AppState;
use crate::till::{CallbackAbout, CallbackRefused};
use crate::wakeups::Topic;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(receive_payment_callback))
}

/// An event in the provider's own form.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(example = json!({"id": "evt_1", "type": "checkout.session.completed", "data": {"object": {"id": "cs_1"}}}))]
#[expect(dead_code, reason = "read by the provider's adapter, from the bytes that were signed")]
struct PaymentEvent {
    #[serde(rename = "type")]
    kind: String,
    data: serde_json::Value,
}

impl From<CallbackRefused> for ApiError {
    fn from(refused: CallbackRefused) -> Self {
        match refused {
            // As if there were no such address.
            CallbackRefused::NotExpected => Self::not_found(),
            refused => Self::new(Code::CallbackRefused, refused.to_string()),
        }
    }
}

/// A payment provider says that something happened
#[utoipa::path(post, path = "/v1/payments/callbacks/{provider}", tag = "money", operation_id = "receive_payment_callback",
    params(("provider" = String, Path, example = "stripe")), security(()), request_body = PaymentEvent,
    responses((status = NO_CONTENT, description = "Taken note of; what became of the payment was asked of the provider")))]
async fn receive_payment_callback(
    State(state): State<AppState>,
    Path(provider): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> ApiResult<StatusCode> {
    if provider != state.payments.name() {
        return Err(ApiError::not_found());
    }
    let about = match state.payments.callback(&headers, &body, state.clock.now()) {
        Ok(about) => about,
        Err(refused) => {
            watch::refused(&state, refused.why()).await?;
            return Err(refused.into());
        }
    };
    match about {
        CallbackAbout::Payment { external_id, reference, by_page } => {
            let row = confirm::named(&state, &external_id, reference.as_deref(), by_page).await?;
            let Some(row) = row else {
                tracing::info!(provider, external_id, "a callback about no payment of ours");
                return Ok(StatusCode::NO_CONTENT);
            };
            // An error answer has the provider send it again; the worker asks by itself besides.
            confirm::confirm(&state, &row, None).await?;
        }
        CallbackAbout::Refund { external_id } => {
            tracing::debug!(provider, external_id, "a refund has news");
            state
                .store
                .write(move |tx| {
                    let external_id = external_id.clone();
                    Box::pin(async move { tx.refund_ask_now(&external_id).await })
                })
                .await?;
            state.wakeups.wake(&Topic::Worker(COLLECT));
        }
        CallbackAbout::Nothing => {}
    }
    Ok(StatusCode::NO_CONTENT)
}
