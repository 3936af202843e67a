//! What surrounds every request: its id, its deadline, the address limit before it, and after it the problem document, the
//! `RateLimit` headers, the metrics and one log line for what broke.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Json;
use axum::extract::{ConnectInfo, MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tarn_protocol::ids::RequestId;

use crate::http::error::{ApiError, Code};
use crate::http::rate_limit::{Allowance, Refused};
use crate::state::AppState;

pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// One request, shared between the envelope and the extractors inside it.
#[derive(Debug)]
pub struct RequestContext {
    pub id: RequestId,
    pub address: IpAddr,
    /// Set by the narrowest limit that counted this request.
    allowance: OnceLock<Allowance>,
}

impl RequestContext {
    /// Counts the outcome of a limit; what the first (narrowest) one left is told to the client.
    pub fn counted(&self, outcome: Result<Allowance, Refused>) -> Result<(), ApiError> {
        match outcome {
            Ok(allowance) => {
                self.allowance.get_or_init(|| allowance);
                Ok(())
            }
            Err(refused) => {
                self.allowance.get_or_init(|| refused.allowance);
                Err(refused.error)
            }
        }
    }
}

pub async fn surround(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let started = state.clock.now();
    let context = Arc::new(RequestContext {
        id: RequestId::new(started, state.entropy.bits()),
        address: address_of(&request),
        allowance: OnceLock::new(),
    });
    request.extensions_mut().insert(Arc::clone(&context));
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();

    let by_address = state.limits.address(context.address);
    let response = match &by_address {
        Ok(_) => answer_in_time(&state, request, next).await,
        Err(refused) => refused.error.clone().into_response(),
    };
    let mut response = written_out(response, &context, &path);

    let allowance = context.allowance.get().copied();
    let allowance = allowance.unwrap_or_else(|| by_address.unwrap_or_else(|refused| refused.allowance));
    tell(&mut response, &context, allowance);
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let micros = state.clock.now().micros_since(started);
    state.metrics.answered(method.as_str(), route, response.status().as_u16(), micros);
    response
}

async fn answer_in_time(state: &AppState, request: Request, next: Next) -> Response {
    let limit = Duration::from_secs(state.config.requests.seconds);
    match tokio::time::timeout(limit, next.run(request)).await {
        Ok(response) => response,
        Err(_) => ApiError::new(Code::TimedOut, "gave up waiting for the answer").into_response(),
    }
}

/// Writes the problem document of an error answer, whoever made it.
fn written_out(mut response: Response, context: &RequestContext, path: &str) -> Response {
    let status = response.status();
    if !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let error = match response.extensions_mut().remove::<ApiError>() {
        Some(error) => error,
        // A replayed answer, or a document that is already written.
        None if response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == PROBLEM_JSON) => {
            return response;
        }
        None => ApiError::of_status(status),
    };
    if error.code().status().is_server_error() {
        let cause = error.cause().map(ToString::to_string);
        tracing::error!(request_id = %context.id, path, code = error.code().as_str(), cause, "request failed");
    }
    let mut written = (error.code().status(), Json(error.problem(context.id.as_str(), path))).into_response();
    let headers = written.headers_mut();
    headers.insert(header::CONTENT_TYPE, PROBLEM_JSON);
    for kept in [header::ALLOW, header::WWW_AUTHENTICATE] {
        if let Some(value) = response.headers_mut().remove(&kept) {
            headers.insert(kept, value);
        }
    }
    if error.code() == Code::Unauthenticated {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = error.retry_after() {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    written
}

pub const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

fn tell(response: &mut Response, context: &RequestContext, allowance: Allowance) {
    let headers = response.headers_mut();
    let mut set = |name, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set(REQUEST_ID, context.id.as_str());
    set(RATE_LIMIT_POLICY, &allowance.policy_header());
    set(RATE_LIMIT, &allowance.state_header());
}

fn address_of(request: &Request) -> IpAddr {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
    peer.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |ConnectInfo(address)| address.ip())
}

/// A handler that panicked: logged with the panic's text, answered like any other fault of ours.
#[expect(clippy::needless_pass_by_value, reason = "the form that the layer calls")]
pub fn panicked(panic: Box<dyn std::any::Any + Send + 'static>) -> Response {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    ApiError::internal(format!("handler panicked: {}", text.as_deref().unwrap_or("no text"))).into_response()
}
