//! The status page: three files compiled into the program, so that one binary is a whole control plane.

use axum::Router;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse};
use axum::routing::get;

use crate::state::AppState;

const PAGE: &str = include_str!("../../../web/status/index.html");
const SCRIPT: &str = include_str!("../../../web/status/page.js");
const STYLE: &str = include_str!("../../../web/status/style.css");

/// Only what this server sends may run or be shown on the page.
const POLICY: (HeaderName, HeaderValue) = (
    header::CONTENT_SECURITY_POLICY,
    HeaderValue::from_static(
        "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    ),
);

pub fn routes() -> Router<AppState> {
    let of_type = |kind: &'static str, text: &'static str| {
        get(move || async move {
            ([(header::CONTENT_TYPE, HeaderValue::from_static(kind))], text).into_response()
        })
    };
    Router::new()
        .route("/", get(async || ([POLICY], Html(PAGE))))
        .route("/status/page.js", of_type("text/javascript; charset=utf-8", SCRIPT))
        .route("/status/style.css", of_type("text/css; charset=utf-8", STYLE))
}
