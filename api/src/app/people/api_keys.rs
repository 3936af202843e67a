//! API keys: made by someone with at least the scopes the key gets, shown once, revoked at once.

use tarn_protocol::ids::ApiKeyId;
use tarn_protocol::units::Timestamp;
use tarn_rows::api_keys::ApiKeyRow;
use tarn_rows::{Json, TenantScope};
use tarn_store::StoreError;

use crate::auth::api_key::ApiKeySecret;
use crate::auth::caller::Identity;
use crate::auth::scope::Scopes;
use crate::state::AppState;

#[derive(Debug, thiserror::Error)]
pub enum ApiKeyError {
    #[error("a key without scopes")]
    NoScopes,
    #[error("a key cannot have a scope that its maker lacks")]
    BeyondMaker,
    #[error("a key that has expired already")]
    Expired,
    #[error("no such key")]
    Unknown,
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Debug, Clone)]
pub struct NewApiKey {
    pub name: String,
    pub scopes: Scopes,
    pub expires_at: Option<Timestamp>,
}

pub async fn create(
    state: &AppState,
    scope: &TenantScope,
    maker: &Identity,
    wish: NewApiKey,
) -> Result<(ApiKeyRow, ApiKeySecret), ApiKeyError> {
    let now = state.clock.now();
    if wish.scopes == Scopes::none() {
        return Err(ApiKeyError::NoScopes);
    }
    if !maker.scopes.includes(wish.scopes) {
        return Err(ApiKeyError::BeyondMaker);
    }
    if wish.expires_at.is_some_and(|expires_at| expires_at <= now) {
        return Err(ApiKeyError::Expired);
    }
    let secret = ApiKeySecret::generate(state.entropy.as_ref());
    let row = ApiKeyRow {
        id: ApiKeyId::new(now, state.entropy.bits()),
        tenant_id: scope.tenant_id().clone(),
        created_by: maker.actor.user_id().clone(),
        name: wish.name,
        scopes: Json(wish.scopes.iter().map(|scope| scope.as_str().to_owned()).collect()),
        secret_sha256: secret.digest(),
        created_at: now,
        expires_at: wish.expires_at,
        last_used_at: None,
        revoked_at: None,
    };
    let (scope, writing) = (scope.clone(), row.clone());
    let written =
        state.store.write(move |tx| Box::pin(async move { tx.insert_api_key(&scope, &writing).await }));
    written.await?;
    Ok((row, secret))
}

/// Revoking twice is revoking once.
pub async fn revoke(state: &AppState, scope: &TenantScope, id: ApiKeyId) -> Result<(), ApiKeyError> {
    let (scope, now) = (scope.clone(), state.clock.now());
    let revoked = state.store.write(move |tx| {
        Box::pin(async move {
            let known =
                tx.revoke_api_key(&scope, &id, now).await? || tx.api_key(&scope, &id).await?.is_some();
            if known { Ok(()) } else { Err(ApiKeyError::Unknown) }
        })
    });
    revoked.await?;
    state.auth.proofs.forget();
    Ok(())
}
