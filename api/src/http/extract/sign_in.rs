//! Counts an attempt to sign in against the stricter limit of its address.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::http::envelope::RequestContext;
use crate::http::error::ApiError;
use crate::state::AppState;

#[derive(Debug, Clone, Copy)]
pub struct SignInAttempt;

impl FromRequestParts<AppState> for SignInAttempt {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        if let Some(context) = parts.extensions.get::<Arc<RequestContext>>() {
            context.counted(state.limits.sign_in(context.address))?;
        }
        Ok(Self)
    }
}
