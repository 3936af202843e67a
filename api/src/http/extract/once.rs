//! `Idempotency-Key`: required where a call spends or allocates.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::app::once::OnceKey;
use crate::auth::secret;
use crate::http::error::{ApiError, Code};
use crate::http::extract::body;

pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
const KEY_CHARACTERS_MAX: usize = 255;

/// A body with the key of its call.
#[derive(Debug, Clone)]
pub struct OnceJson<T> {
    pub key: OnceKey,
    pub body: T,
}

/// The key of a call without a body.
#[derive(Debug, Clone)]
pub struct OnceEmpty(pub OnceKey);

impl<S: Send + Sync, T: DeserializeOwned + 'static> FromRequest<S> for OnceJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let key = key_of(request.headers())?;
        let route = format!("{} {}", request.method(), request.uri().path());
        let bytes = body::read(request, state).await?;
        let body = body::parse(&bytes)?;
        Ok(Self { key: OnceKey { key, route, body_sha256: secret::digest(&bytes) }, body })
    }
}

impl<S: Send + Sync> FromRequestParts<S> for OnceEmpty {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let key = key_of(&parts.headers)?;
        // The query is part of what is asked for, as a body would be.
        let asked = parts.uri.query().unwrap_or_default();
        let route = format!("{} {}", parts.method, parts.uri.path());
        Ok(Self(OnceKey { key, route, body_sha256: secret::digest(asked) }))
    }
}

/// Bare or as a quoted structured-field string; both name the same key.
fn key_of(headers: &HeaderMap) -> Result<String, ApiError> {
    let missing = || {
        ApiError::new(
            Code::IdempotencyKeyMissing,
            "send a fresh UUID for each new call, the same for a retry",
        )
    };
    let text = headers.get(IDEMPOTENCY_KEY).ok_or_else(missing)?.to_str().unwrap_or_default().trim();
    let key = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(text);
    let legal = key.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
    if legal && (1..=KEY_CHARACTERS_MAX).contains(&key.len()) {
        Ok(key.to_owned())
    } else {
        Err(ApiError::new(Code::MalformedRequest, "an Idempotency-Key has 1 to 255 visible ASCII characters"))
    }
}
