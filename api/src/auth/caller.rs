//! From a credential to an identity, by one row of the database.

use subtle::ConstantTimeEq;
use tarn_protocol::ids::{ApiKeyId, SessionId, TenantId, UserId};
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::accounts::Role;
use tarn_rows::api_keys::ApiKeyRow;
use tarn_rows::secrets::SecretDigest;
use tarn_rows::sessions::SessionProofRow;
use tarn_store::StoreError;

use crate::auth::api_key::{self, ApiKeySecret};
use crate::auth::proofs::{KeyProof, SessionKey};
use crate::auth::role;
use crate::auth::scope::{Scope, Scopes};
use crate::http::error::{ApiError, ApiResult, Code};
use crate::state::AppState;

/// How exact `last_used_at` is: one write per key and minute, not one per request.
const NOTE_USE_SECONDS: i64 = 60;

/// Who acts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Actor {
    Person { user_id: UserId, session_id: SessionId, role: Role },
    Key { key_id: ApiKeyId, made_by: UserId },
}

impl Actor {
    /// For `created_by`, the audit log and the rate limit: the credential that acts.
    pub fn id(&self) -> &str {
        match self {
            Self::Person { user_id, .. } => user_id.as_str(),
            Self::Key { key_id, .. } => key_id.as_str(),
        }
    }

    /// The person behind it.
    pub const fn user_id(&self) -> &UserId {
        match self {
            Self::Person { user_id, .. } => user_id,
            Self::Key { made_by, .. } => made_by,
        }
    }
}

/// A proven caller: who, for which tenant, with which scopes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub actor: Actor,
    pub tenant_id: TenantId,
    pub scopes: Scopes,
}

impl Identity {
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(scope)
    }
}

/// Proves a credential: an API key by its prefix, anything else as an access token.
pub async fn identify(state: &AppState, credential: &str) -> ApiResult<Identity> {
    if credential.starts_with(api_key::PREFIX) {
        key(state, credential).await
    } else {
        person(state, credential).await
    }
}

fn unauthenticated() -> ApiError {
    ApiError::new(Code::Unauthenticated, "this credential is unknown, expired or revoked")
}

async fn person(state: &AppState, token: &str) -> ApiResult<Identity> {
    let claims = state.auth.tokens.verify(token, state.clock.now()).map_err(|_| unauthenticated())?;
    let session = (claims.sub, claims.tenant, claims.session);
    let proof = session_proof(state, &session).await?;
    let proof = proof.filter(|proof| proof.live && proof.token_epoch == claims.epoch);
    let proof = proof.ok_or_else(unauthenticated)?;
    let scopes = role::scopes_of(proof.role);
    let (user_id, tenant_id, session_id) = session;
    Ok(Identity {
        actor: Actor::Person { user_id, session_id, role: proof.role },
        tenant_id,
        scopes: if proof.operator { scopes.with(Scope::Admin) } else { scopes },
    })
}

async fn session_proof(
    state: &AppState,
    session: &SessionKey,
) -> Result<Option<SessionProofRow>, StoreError> {
    let proofs = &state.auth.proofs;
    if let Some(known) = proofs.session(session) {
        return Ok(Some(known));
    }
    let (age, (user, tenant, login)) = (proofs.age(), session);
    let read = state.store.reader().await?.session_proof(user, tenant, login).await?;
    if let Some(proof) = &read {
        proofs.remember_session(age, session.clone(), proof.clone());
    }
    Ok(read)
}

async fn key(state: &AppState, text: &str) -> ApiResult<Identity> {
    let digest = ApiKeySecret::parse(text).ok_or_else(unauthenticated)?.digest();
    let now = state.clock.now();
    let KeyProof { row, by_operator } = key_proof(state, &digest, now).await?.ok_or_else(unauthenticated)?;
    let same = row.secret_sha256.as_str().as_bytes().ct_eq(digest.as_str().as_bytes());
    let live = row.revoked_at.is_none() && row.expires_at.is_none_or(|expires_at| now < expires_at);
    if !(bool::from(same) && live) {
        return Err(unauthenticated());
    }
    let scopes = row.scopes.0.iter().filter_map(|scope| scope.parse().ok());
    let scopes: Scopes = scopes.filter(|scope| *scope != Scope::Admin || by_operator).collect();
    let actor = Actor::Key { key_id: row.id, made_by: row.created_by };
    Ok(Identity { actor, tenant_id: row.tenant_id, scopes })
}

async fn key_proof(
    state: &AppState,
    digest: &SecretDigest,
    now: Timestamp,
) -> Result<Option<KeyProof>, StoreError> {
    let proofs = &state.auth.proofs;
    if let Some(known) = proofs.key(digest) {
        return Ok(Some(known));
    }
    let age = proofs.age();
    let mut tx = state.store.reader().await?;
    let Some(row) = tx.api_key_by_secret(digest).await? else { return Ok(None) };
    let maker = tx.user(&row.created_by).await?;
    drop(tx);
    if row.revoked_at.is_none() {
        used(state, &row, now).await;
    }
    let proof = KeyProof { row, by_operator: maker.is_some_and(|maker| maker.operator) };
    proofs.remember_key(age, digest.clone(), proof.clone());
    Ok(Some(proof))
}

/// Notes the use of a key, at most once in [`NOTE_USE_SECONDS`]. Not being able to is no reason to refuse the call.
async fn used(state: &AppState, row: &ApiKeyRow, now: Timestamp) {
    let since = now.plus_seconds(-NOTE_USE_SECONDS);
    if row.last_used_at.is_some_and(|used_at| used_at >= since) {
        return;
    }
    let (scope, id) = (TenantScope::proven(row.tenant_id.clone()), row.id.clone());
    let noted =
        state.store.write(move |tx| Box::pin(async move { tx.touch_api_key(&scope, &id, now, since).await }));
    if let Err(error) = noted.await {
        tracing::warn!(%error, key = row.id.as_str(), "could not note the use of a key");
    }
}
