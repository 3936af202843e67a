//! Ids in paths. A text that is no id cannot name anything, so it is the same 404 as an id that names nothing of yours.

use axum::RequestPartsExt;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::http::error::ApiError;

#[derive(Debug, Clone)]
pub struct Path<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send + 'static> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let path = parts.extract::<axum::extract::Path<T>>().await;
        path.map(|axum::extract::Path(value)| Self(value)).map_err(|_| ApiError::not_found())
    }
}
