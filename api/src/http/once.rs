//! Answers a call that is done once: the first answer, or the same again.

use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;
use tarn_rows::TenantScope;
use tarn_store::{StoreError, Tx, Work};

use crate::app::once::{self, Answer, Claim, Flight, OnceKey};
use crate::http::envelope::{PROBLEM_JSON, RequestContext};
use crate::http::error::{ApiError, ApiResult, Code};
use crate::state::AppState;

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// One call: whose, under which key, and what a success answers.
#[derive(Debug, Clone)]
pub struct Call {
    pub scope: TenantScope,
    pub key: OnceKey,
    pub status: StatusCode,
}

/// What the call got.
#[derive(Debug)]
pub struct Done<T> {
    /// The document, if this was the first call: what to do after the commit (wake a worker) hangs on it.
    pub first: Option<T>,
    pub response: Response,
}

enum Written<T> {
    First(T, Answer),
    Before(Claim),
}

enum Failed<E> {
    Effect(E),
    Document(serde_json::Error),
    Store(StoreError),
}

impl<E> From<StoreError> for Failed<E> {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Begins a call that does something before its transaction (asks a payment provider): a second with this key waits.
pub fn enter(state: &AppState, call: &Call) -> ApiResult<Flight> {
    state.in_flight.enter(&call.scope, &call.key).ok_or_else(|| {
        ApiError::new(Code::KeyInFlight, "wait for its answer, or ask again with the same key")
            .retry_after_seconds(1)
    })
}

/// Runs `effect` at most once for this key, in one transaction with its stored answer.
pub async fn answer<T, E, F>(
    state: &AppState,
    context: &RequestContext,
    call: Call,
    effect: F,
) -> ApiResult<Done<T>>
where
    T: Serialize + Send + 'static,
    E: Into<ApiError> + Send + 'static,
    F: for<'tx> FnOnce(&'tx mut Tx) -> Work<'tx, Result<T, E>> + Clone + Send + 'static,
{
    let flight = enter(state, &call)?;
    answer_within(state, context, call, flight, effect).await
}

/// The same for a call that was begun with [`enter`].
pub async fn answer_within<T, E, F>(
    state: &AppState,
    context: &RequestContext,
    call: Call,
    flight: Flight,
    effect: F,
) -> ApiResult<Done<T>>
where
    T: Serialize + Send + 'static,
    E: Into<ApiError> + Send + 'static,
    F: for<'tx> FnOnce(&'tx mut Tx) -> Work<'tx, Result<T, E>> + Clone + Send + 'static,
{
    let now = state.clock.now();
    // The flight lands when the write has ended, even if the client has gone.
    let (writing, flight) = (call.clone(), Arc::new(flight));
    let written = state.store.write(move |tx| {
        Box::pin(async move {
            let _flight = flight;
            let call = writing;
            match once::claim(tx, &call.scope, &call.key, now).await? {
                Claim::Mine => {}
                before => return Ok(Written::Before(before)),
            }
            let document = effect(tx).await.map_err(Failed::Effect)?;
            let body = serde_json::to_string(&document).map_err(Failed::Document)?;
            let answer = Answer { status: call.status.as_u16(), body };
            once::finish(tx, &call.scope, &call.key, &answer, now).await?;
            Ok(Written::First(document, answer))
        })
    });
    match written.await {
        Ok(Written::First(document, answer)) => {
            Ok(Done { first: Some(document), response: response(&call.key, &answer, false) })
        }
        Ok(Written::Before(claim)) => before(&call.key, claim),
        Err(Failed::Effect(error)) => refused(state, context, call, error.into()).await,
        Err(Failed::Document(error)) => Err(ApiError::internal(error)),
        Err(Failed::Store(error)) => Err(error.into()),
    }
}

/// What was answered before, for calls that must know before they begin (a payment).
pub async fn earlier<T>(state: &AppState, call: &Call) -> ApiResult<Option<Done<T>>> {
    let claim = once::answered(&mut state.store.reader().await?, &call.scope, &call.key).await?;
    claim.map(|claim| before(&call.key, claim)).transpose()
}

/// Stores a refusal, so that a retry hears the same; faults of ours are not stored, a retry may fare better.
async fn refused<T>(
    state: &AppState,
    context: &RequestContext,
    call: Call,
    error: ApiError,
) -> ApiResult<Done<T>> {
    if error.code().status().is_server_error() {
        return Err(error);
    }
    let path = call.key.route.split_once(' ').map_or("", |(_, path)| path);
    let problem = error.problem(context.id.as_str(), path);
    let body = serde_json::to_string(&problem).map_err(ApiError::internal)?;
    let answer = Answer { status: problem.status, body };
    let (now, key) = (state.clock.now(), call.key.clone());
    let claim = state.store.write(move |tx| {
        Box::pin(async move {
            let claim = once::claim(tx, &call.scope, &call.key, now).await?;
            if claim == Claim::Mine {
                once::finish(tx, &call.scope, &call.key, &answer, now).await?;
            }
            Ok::<_, StoreError>(claim)
        })
    });
    match claim.await? {
        Claim::Mine => Err(error),
        claim => before(&key, claim),
    }
}

fn before<T>(key: &OnceKey, claim: Claim) -> ApiResult<Done<T>> {
    match claim {
        Claim::Answered(answer) => Ok(Done { first: None, response: response(key, &answer, true) }),
        Claim::OtherCall | Claim::Mine => {
            Err(ApiError::new(Code::KeyReused, "the first call with this key had another route or body"))
        }
    }
}

fn response(key: &OnceKey, answer: &Answer, replayed: bool) -> Response {
    let status = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, answer.body.clone()).into_response();
    let headers = response.headers_mut();
    let problem = status.is_client_error() || status.is_server_error();
    headers.insert(
        header::CONTENT_TYPE,
        if problem { PROBLEM_JSON } else { HeaderValue::from_static("application/json") },
    );
    if replayed {
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
    }
    if status == StatusCode::CREATED
        && let Some(location) = location(key, &answer.body)
    {
        headers.insert(header::LOCATION, location);
    }
    response
}

/// Where what was created is: under the path it was posted to.
fn location(key: &OnceKey, body: &str) -> Option<HeaderValue> {
    let (_, path) = key.route.split_once(' ')?;
    let document: Value = serde_json::from_str(body).ok()?;
    let id = document.get("id")?.as_str()?;
    HeaderValue::from_str(&format!("{path}/{id}")).ok()
}
