//! Query strings that follow the contract.

use axum::RequestPartsExt;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::http::error::ApiError;

#[derive(Debug, Clone)]
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        // No text of ours has it, and PostgreSQL takes none that does.
        if parts.uri.query().is_some_and(|query| query.contains("%00")) {
            return Err(ApiError::invalid("?", "holds a NUL character"));
        }
        let query = parts.extract::<axum::extract::Query<T>>().await;
        query
            .map(|axum::extract::Query(value)| Self(value))
            .map_err(|rejection| ApiError::invalid("?", rejection.body_text()))
    }
}
