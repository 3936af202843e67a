//! From a credential to an identity, by one read of the database.

use tarn_protocol::ids::{ApiKeyId, SessionId, TenantId, UserId};
use tarn_rows::accounts::Role;

use crate::auth::scope::{Scope, Scopes};
use crate::http::error::{ApiError, ApiResult, Code};

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

/// Proves a credential: an API key by its shape, anything else as an access token.
pub async fn identify(_state: &crate::state::AppState, _credential: &str) -> ApiResult<Identity> {
    Err(ApiError::new(Code::Unauthenticated, "the store is not connected yet"))
}
