//! The HTTP surface: one file per noun, each with its documents, its handlers and its `routes()`.
//!
//! Routes enter only through `utoipa_axum`, so that the router and the OpenAPI document cannot diverge. Around every route:
//! [`envelope`] (request id, deadline, address limit, problem documents), a body limit, and a catch for panics.
//! Statuses live in [`error`] alone.

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_swagger_ui::SwaggerUi;

use crate::http::error::{ApiError, Code};
use crate::openapi;
use crate::state::AppState;

pub mod admin;
pub mod agent;
pub mod amount;
pub mod api_keys;
pub mod auto_top_up;
pub mod billing;
pub mod billing_details;
pub mod charges;
pub mod envelope;
pub mod error;
pub mod evidence;
pub mod extract;
pub mod format;
pub mod health;
pub mod instances;
pub mod instant;
pub mod invoices;
pub mod ledger;
pub mod notices;
pub mod offers;
pub mod once;
pub mod payment_callbacks;
pub mod period;
pub mod rate_limit;
pub mod refunds;
pub mod sessions;
pub mod sla_credits;
pub mod spend_caps;
pub mod ssh_keys;
pub mod statements;
pub mod status_page;
pub mod table;
pub mod tenants;
pub mod top_ups;
pub mod wallet;

/// Every documented route. A new noun adds its line here.
fn documented() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(openapi::base())
        .merge(sessions::routes())
        .merge(tenants::routes())
        .merge(api_keys::routes())
        .merge(ssh_keys::routes())
        .merge(offers::routes())
        .merge(instances::routes())
        .merge(wallet::routes())
        .merge(top_ups::routes())
        .merge(auto_top_up::routes())
        .merge(spend_caps::routes())
        .merge(sla_credits::routes())
        .merge(refunds::routes())
        .merge(notices::routes())
        .merge(payment_callbacks::routes())
        .merge(charges::routes())
        .merge(billing::routes())
        .merge(billing_details::routes())
        .merge(invoices::routes())
        .merge(ledger::routes())
        .merge(statements::routes())
        .merge(evidence::routes())
        .merge(admin::hosts::routes())
        .merge(admin::gpus::routes())
        .merge(admin::links::routes())
        .merge(admin::alerts::routes())
        .merge(admin::audit::routes())
        .merge(admin::price_book::routes())
        .merge(admin::tenants::routes())
        .merge(admin::credits::routes())
        .merge(admin::refunds::routes())
        .merge(admin::join_tokens::routes())
        .merge(admin::log::routes())
        .merge(admin::reports::routes())
        .merge(health::routes())
}

/// The document that clients are generated from.
pub fn document() -> OpenApi {
    openapi::completed(documented().into_openapi())
}

pub fn app(state: AppState) -> Router {
    let (routes, document) = documented().split_for_parts();
    let docs = SwaggerUi::new("/docs").url("/openapi.json", openapi::completed(document));
    routes
        .merge(agent::routes())
        .merge(docs)
        .merge(status_page::routes())
        .fallback(async || ApiError::new(Code::RouteNotFound, "see /openapi.json for what there is"))
        .method_not_allowed_fallback(async || ApiError::new(Code::MethodNotAllowed, "see the Allow header"))
        .layer(CatchPanicLayer::custom(envelope::panicked))
        .layer(DefaultBodyLimit::max(state.config.requests.body_bytes))
        .layer(middleware::from_fn_with_state(state.clone(), envelope::surround))
        .with_state(state)
}
