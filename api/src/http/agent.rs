//! `/agent/v1`: the agents' side. Its documents are `tarn_protocol::control`; it is not part of the customers' contract and so not
//! in the OpenAPI document.

use std::time::Duration;

use axum::extract::{DefaultBodyLimit, FromRequestParts, State};
use axum::http::header;
use axum::http::request::Parts;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use tarn_protocol::control::{Desired, JoinRequest, JoinResponse, Report, ReportAccepted};
use tarn_protocol::ids::HostId;
use tarn_store::StoreError;

use crate::app::agents::join::JoinError;
use crate::app::agents::{accept_report, desired, join};
use crate::auth::secret;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::extract::body::AgentJson;
use crate::http::extract::query::Query;
use crate::state::AppState;
use crate::wakeups::Topic;

/// A report carries up to 64 KiB of each instance's output, six times as much if all of it must be escaped: whatever the instances of a
/// full host print, its report is taken.
const REPORT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// The longest a `desired` call waits.
const WAIT_SECONDS_MAX: u64 = 60;
/// How often the revision is read again without being woken: another replica's change is seen only so.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/agent/v1/join", post(join_host))
        .route("/agent/v1/report", post(report).layer(DefaultBodyLimit::max(REPORT_BYTES_MAX)))
        .route("/agent/v1/desired", get(read_desired))
}

impl From<JoinError> for ApiError {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::InvalidToken => Self::new(Code::Unauthenticated, error.to_string()),
            JoinError::Malformed => Self::new(Code::InvalidRequest, error.to_string()),
            JoinError::Store(error) => error.into(),
        }
    }
}

/// The host whose credential this is.
struct AgentCaller(HostId);

impl FromRequestParts<AppState> for AgentCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let refused = || ApiError::new(Code::Unauthenticated, "send the host's credential as a bearer token");
        let header = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let credential = header.and_then(|value| value.strip_prefix("Bearer ")).ok_or_else(refused)?;
        let digest = secret::digest(credential.trim());
        let host = state.store.read(move |tx| Box::pin(async move { tx.host_by_credential(&digest).await }));
        host.await?.map(|host| Self(host.id)).ok_or_else(refused)
    }
}

async fn join_host(
    State(state): State<AppState>,
    AgentJson(request): AgentJson<JoinRequest>,
) -> ApiResult<Json<JoinResponse>> {
    Ok(Json(join::join(&state, request).await?))
}

async fn report(
    State(state): State<AppState>,
    AgentCaller(host): AgentCaller,
    AgentJson(report): AgentJson<Report>,
) -> ApiResult<Json<ReportAccepted>> {
    Ok(Json(accept_report::accept(&state, &host, report).await?))
}

#[derive(Debug, Deserialize)]
struct DesiredQuery {
    #[serde(default = "before_all")]
    after: i64,
    #[serde(default)]
    wait_seconds: u64,
}

const fn before_all() -> i64 {
    -1
}

/// The document, once its revision is above `after` or the wait ends.
async fn read_desired(
    State(state): State<AppState>,
    AgentCaller(host): AgentCaller,
    Query(query): Query<DesiredQuery>,
) -> ApiResult<Json<Desired>> {
    let wait = Duration::from_secs(query.wait_seconds.min(WAIT_SECONDS_MAX));
    let _ = tokio::time::timeout(wait, changed(&state, &host, query.after)).await;
    let read = state.store.snapshot(move |tx| Box::pin(async move { desired::document(tx, &host).await }));
    read.await?.map(Json).ok_or_else(ApiError::not_found)
}

async fn changed(state: &AppState, host: &HostId, after: i64) -> Result<(), StoreError> {
    loop {
        let mut woken = state.wakeups.subscribe(Topic::Desired(host.clone()));
        let id = host.clone();
        let revision =
            state.store.read(move |tx| Box::pin(async move { tx.desired_revision(&id).await })).await?;
        if revision.is_none_or(|revision| revision > after) {
            return Ok(());
        }
        tokio::select! {
            () = woken.woken() => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
}
