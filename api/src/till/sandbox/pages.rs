//! The page on which a customer pays pretended money.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};

use super::Shared;
use super::book::Paying;

pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new()
        .route("/pay/{id}", get(page))
        .route("/pay/{id}/{how}", post(paid))
        .route("/thanks", get(async || Html("<p>Thank you. You can close this page.</p>")))
}

async fn page(State(shared): State<Arc<Shared>>, Path(id): Path<String>) -> Response {
    let Some((fen, status)) = shared.book().page(&id) else { return StatusCode::NOT_FOUND.into_response() };
    // The id is one of ours by now, so nothing in it needs escaping.
    let button = |how: &str, text: &str| {
        format!("<form method=\"post\" action=\"/pay/{id}/{how}\"><button>{text}</button></form>")
    };
    let buttons = if status == "open" {
        [button("pays", "Pay"), button("fails", "Have the bank refuse"), button("expires", "Give up")]
            .concat()
    } else {
        format!("<p>This page is over: {status}.</p>")
    };
    let (yuan, rest) = (fen / 100, fen % 100);
    Html(format!(
        "<!doctype html><title>Pretended payment</title><h1>{yuan}.{rest:02} CNY of pretended money</h1>{buttons}"
    ))
    .into_response()
}

async fn paid(State(shared): State<Arc<Shared>>, Path((id, how)): Path<(String, String)>) -> Response {
    let how = match how.as_str() {
        "pays" => Paying::Pays,
        "fails" => Paying::Fails,
        "expires" => Paying::LetsExpire,
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let now = shared.clock.now();
    match shared.book().pay(&id, how, now) {
        Some(()) => Redirect::to("/thanks").into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
