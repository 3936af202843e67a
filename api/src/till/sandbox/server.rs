//! The sandbox's answers to Stripe's calls.

use std::sync::Arc;

use axum::extract::{Form, Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use secrecy::ExposeSecret;
use serde_json::json;
use subtle::ConstantTimeEq;

use super::book::{self, Answer, Book};
use super::{Shared, pages};

type Wanted = Form<book::Form>;

pub(super) fn routes(shared: Arc<Shared>) -> Router {
    let calls = Router::new()
        .route("/v1/balance", get(async || Json(json!({"object": "balance"}))))
        .route("/v1/checkout/sessions", post(open_session))
        .route("/v1/checkout/sessions/{id}", get(session))
        .route("/v1/payment_intents", post(charge))
        .route("/v1/payment_intents/search", get(search))
        .route("/v1/payment_intents/{id}", get(intent))
        .route("/v1/refunds", post(refund).get(refunds_of))
        .route("/v1/refunds/{id}", get(refund_of))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), guarded));
    calls.merge(pages::routes()).with_state(shared)
}

/// Only with the key; not at all while it is down.
async fn guarded(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    if shared.book().faults.down {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let wanted = format!("Bearer {}", shared.key.expose_secret());
    let given = request.headers().get(header::AUTHORIZATION).map_or(&[][..], |value| value.as_bytes());
    if !bool::from(wanted.as_bytes().ct_eq(given)) {
        let body = json!({"error": {"type": "invalid_request_error", "message": "sandbox: unknown key"}});
        return (StatusCode::UNAUTHORIZED, Json(body)).into_response();
    }
    next.run(request).await
}

fn written((status, body): Answer) -> Response {
    (StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), Json(body)).into_response()
}

/// Does a call once for its key; for a day the same key gets the same answer, also when the first one was lost.
fn once(
    shared: &Shared,
    headers: &HeaderMap,
    form: &book::Form,
    effect: impl FnOnce(&mut Book) -> Answer,
) -> Response {
    let now = shared.clock.now();
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok()).map(str::to_owned);
    let mut book = shared.book();
    let earlier = key.as_ref().and_then(|key| book.answered(key, form, now));
    let answer = earlier.unwrap_or_else(|| {
        let answer = effect(&mut book);
        if let Some(key) = key {
            book.remember(key, form, &answer, now);
        }
        answer
    });
    if book.faults.loses_answers {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    } else {
        written(answer)
    }
}

fn base(shared: &Shared) -> String {
    shared.address.get().map_or_else(String::new, |address| format!("http://{address}"))
}

async fn open_session(State(shared): State<Arc<Shared>>, headers: HeaderMap, Form(form): Wanted) -> Response {
    let base = base(&shared);
    once(&shared, &headers, &form, |book| book.open_session(&form, &base))
}

async fn session(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response {
    written(shared.book().session(&id, &base(&shared)))
}

async fn charge(State(shared): State<Arc<Shared>>, headers: HeaderMap, Form(form): Wanted) -> Response {
    once(&shared, &headers, &form, |book| book.charge(&form))
}

async fn intent(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response {
    written(shared.book().intent(&id))
}

async fn search(State(shared): State<Arc<Shared>>, Query(wanted): Query<book::Form>) -> Response {
    written(shared.book().search(wanted.get("query").map_or("", String::as_str)))
}

async fn refunds_of(State(shared): State<Arc<Shared>>, Query(wanted): Query<book::Form>) -> Response {
    written(shared.book().refunds_of(wanted.get("payment_intent").map_or("", String::as_str)))
}

async fn refund(State(shared): State<Arc<Shared>>, headers: HeaderMap, Form(form): Wanted) -> Response {
    once(&shared, &headers, &form, |book| book.refund(&form))
}

async fn refund_of(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response {
    written(shared.book().refund_of(&id))
}
