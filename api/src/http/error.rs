//! Every error a client can see, and the only file that knows HTTP statuses (RFC 9457, `application/problem+json`).
//!
//! A use case fails with its own enum; the endpoint's file maps that enum onto a [`Code`]. The code is the stable part of the
//! contract; the public `detail` and the internal `cause` are separate fields, and the cause is logged once, never sent.
//! The answer itself is written by [`crate::http::envelope`], which knows the request's id and path.

use std::error::Error;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tarn_store::StoreError;
use utoipa::ToSchema;

/// Declares the codes with their status and title, so that none can lack one.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $status:ident, $title:literal;)*) => {
        /// Stable, machine-readable name of an error.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            pub const fn status(self) -> StatusCode {
                match self { $(Self::$name => StatusCode::$status,)* }
            }

            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }
        }
    };
}

codes! {
    MalformedRequest = "malformed_request", BAD_REQUEST, "The request could not be read";
    IdempotencyKeyMissing = "idempotency_key_missing", BAD_REQUEST, "This call needs an Idempotency-Key header";
    /// Wrong signature, wrong time, unreadable.
    CallbackRefused = "callback_refused", BAD_REQUEST, "This callback does not prove where it comes from";
    Unauthenticated = "unauthenticated", UNAUTHORIZED, "No valid credential";
    InvalidLogin = "invalid_login", UNAUTHORIZED, "Email or password is wrong";
    BalanceTooLow = "balance_too_low", PAYMENT_REQUIRED, "The wallet does not cover this";
    SpendCapReached = "spend_cap_reached", PAYMENT_REQUIRED, "A spend cap of this tenant leaves no room for this";
    Forbidden = "forbidden", FORBIDDEN, "This credential may not do that";
    ScopeMissing = "scope_missing", FORBIDDEN, "This credential lacks a scope";
    PaymentsClosed = "payments_closed", FORBIDDEN, "No payment provider takes this top-up";
    QuotaExceeded = "quota_exceeded", FORBIDDEN, "A quota of this tenant does not allow that";
    /// Unknown and foreign ids alike.
    NotFound = "not_found", NOT_FOUND, "There is no such thing";
    RouteNotFound = "route_not_found", NOT_FOUND, "There is no such route";
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "This route does not take this method";
    NotAcceptable = "not_acceptable", NOT_ACCEPTABLE, "It does not come in that format";
    WaitTimedOut = "wait_timed_out", REQUEST_TIMEOUT, "The state was not reached in time";
    WrongState = "wrong_state", CONFLICT, "Its state does not allow this";
    AlreadyExists = "already_exists", CONFLICT, "It exists already";
    InUse = "in_use", CONFLICT, "It is in use";
    NotRefundable = "not_refundable", CONFLICT, "So much of it cannot be given back";
    KeyInFlight = "idempotency_key_in_flight", CONFLICT, "The first call with this Idempotency-Key is still running";
    NoCapacity = "no_capacity", CONFLICT, "No host can serve this now";
    NothingToInvoice = "nothing_to_invoice", CONFLICT, "There is nothing that is not on an invoice already";
    ChangedMeanwhile = "changed_meanwhile", CONFLICT, "Someone else changed it; read again";
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE, "The request body is too large";
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE, "Send application/json";
    InvalidRequest = "invalid_request", UNPROCESSABLE_ENTITY, "The request breaks the contract";
    InvalidCursor = "invalid_cursor", UNPROCESSABLE_ENTITY, "This cursor is not one of this list";
    KeyReused = "idempotency_key_reused", UNPROCESSABLE_ENTITY, "This Idempotency-Key belongs to another request";
    RateLimited = "rate_limited", TOO_MANY_REQUESTS, "Too many requests";
    Internal = "internal", INTERNAL_SERVER_ERROR, "Something broke on our side";
    /// The same call with the same key is safe: nothing is charged twice.
    PaymentsUnavailable = "payments_unavailable", SERVICE_UNAVAILABLE, "The payment provider does not answer";
    PaymentRefused = "payment_refused", BAD_GATEWAY, "The payment provider did not take this";
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "Not ready; try again";
    TimedOut = "timed_out", GATEWAY_TIMEOUT, "The request took too long";
}

/// One thing wrong in a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// JSON pointer into the body, or `?name` for a query parameter.
    #[schema(example = "/email")]
    pub pointer: String,
    pub detail: String,
}

/// The body of every error.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    #[serde(rename = "type")]
    #[schema(example = "urn:tarn:problem:not_found")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    pub detail: String,
    /// The path that was asked for.
    pub instance: String,
    /// Stable name of the error; switch on this.
    #[schema(example = "not_found")]
    pub code: String,
    /// Quote this when you report a problem.
    #[schema(example = "req_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    pub request_id: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// Members of one code only, for example `alternatives` of `no_capacity`.
    #[serde(flatten)]
    #[schema(ignore)]
    pub members: serde_json::Map<String, Value>,
}

/// An error on its way to the client.
#[derive(Debug, Clone)]
pub struct ApiError(Arc<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    code: Code,
    detail: String,
    errors: Vec<FieldError>,
    members: serde_json::Map<String, Value>,
    retry_after_seconds: Option<u64>,
    cause: Option<Arc<dyn Error + Send + Sync>>,
}

pub type ApiResult<T> = Result<T, ApiError>;

impl ApiError {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            code,
            detail: detail.into(),
            errors: Vec::new(),
            members: serde_json::Map::new(),
            retry_after_seconds: None,
            cause: None,
        }))
    }

    /// Unknown or foreign: the same words for both.
    pub fn not_found() -> Self {
        Self::new(Code::NotFound, "no such resource, or not one of yours")
    }

    /// Ours: `cause` is logged, the client learns only the request id.
    pub fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(Code::Internal, "the error is logged under this request id").caused_by(cause)
    }

    /// One wrong field of the request.
    pub fn invalid(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        let error = FieldError { pointer: pointer.into(), detail: detail.into() };
        Self::new(Code::InvalidRequest, "see errors").with_errors(vec![error])
    }

    pub fn caused_by(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.inner().cause = Some(Arc::from(cause.into()));
        self
    }

    pub fn with_errors(mut self, errors: Vec<FieldError>) -> Self {
        self.inner().errors = errors;
        self
    }

    /// Adds a member that only this code has, for example `alternatives`.
    pub fn with_member(mut self, name: &str, value: Value) -> Self {
        self.inner().members.insert(name.to_owned(), value);
        self
    }

    pub fn retry_after_seconds(mut self, seconds: u64) -> Self {
        self.inner().retry_after_seconds = Some(seconds.max(1));
        self
    }

    pub fn code(&self) -> Code {
        self.0.code
    }

    pub fn retry_after(&self) -> Option<u64> {
        self.0.retry_after_seconds
    }

    /// For the log: what really happened, if it is not the client's doing.
    pub fn cause(&self) -> Option<&(dyn Error + Send + Sync)> {
        self.0.cause.as_deref()
    }

    /// The document as one request sees it.
    pub fn problem(&self, request_id: &str, path: &str) -> Problem {
        let code = self.0.code;
        Problem {
            kind: format!("urn:tarn:problem:{}", code.as_str()),
            title: code.title().to_owned(),
            status: code.status().as_u16(),
            detail: self.0.detail.clone(),
            instance: path.to_owned(),
            code: code.as_str().to_owned(),
            request_id: request_id.to_owned(),
            errors: self.0.errors.clone(),
            members: self.0.members.clone(),
        }
    }

    /// What a framework's bare error answer means.
    pub fn of_status(status: StatusCode) -> Self {
        let code = match status {
            StatusCode::NOT_FOUND => Code::RouteNotFound,
            StatusCode::METHOD_NOT_ALLOWED => Code::MethodNotAllowed,
            StatusCode::PAYLOAD_TOO_LARGE => Code::BodyTooLarge,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Code::UnsupportedMediaType,
            status if status.is_client_error() => Code::MalformedRequest,
            _ => Code::Internal,
        };
        Self::new(code, "")
    }

    fn inner(&mut self) -> &mut Inner {
        Arc::make_mut(&mut self.0)
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.0.code.as_str(), self.0.detail)
    }
}

impl Error for ApiError {}

impl IntoResponse for ApiError {
    /// Only the status, with the error beside it: the envelope writes the document.
    fn into_response(self) -> Response {
        let mut response = self.code().status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy(_) | StoreError::Unavailable(_) | StoreError::Ended => {
                Self::new(Code::Unavailable, "the database is busy; try again with the same Idempotency-Key")
                    .retry_after_seconds(1)
                    .caused_by(error)
            }
            error => Self::internal(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_statuses_are_errors() {
        let mut seen = std::collections::HashSet::new();
        for code in Code::ALL {
            assert!(seen.insert(code.as_str()), "{code:?}");
            assert!(code.status().is_client_error() || code.status().is_server_error(), "{code:?}");
        }
    }

    #[test]
    fn the_cause_is_never_in_the_document() {
        let error = ApiError::internal("password of the database is hunter2");
        let document = serde_json::to_string(&error.problem("req_1", "/v1/x")).unwrap();
        assert!(!document.contains("hunter2"), "{document}");
        assert!(error.cause().unwrap().to_string().contains("hunter2"));
    }
}
