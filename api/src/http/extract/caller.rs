//! Extractors whose type proves who may call. A handler names the one it needs; there is no other way to a tenant's rows.
//!
//! | extractor | who |
//! |---|---|
//! | [`Caller`] | any valid credential |
//! | [`SignedIn`] | a person's session, not a key |
//! | [`TenantCaller`]`<`[`may`]`::InstancesWrite>` | a credential with that scope in its tenant |
//! | [`Operator`] | an operator's session, or a key with the scope `admin` that an operator made |

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use tarn_protocol::ids::{RequestId, SessionId, TenantId, UserId};
use tarn_rows::TenantScope;
use tarn_rows::accounts::Role;

use crate::app::operators::log::By;
use crate::auth::caller::{self, Actor, Identity};
use crate::auth::scope::Scope;
use crate::http::envelope::RequestContext;
use crate::http::error::{ApiError, Code};
use crate::state::AppState;

pub const API_KEY: &str = "x-api-key";

/// A scope as a type.
pub trait Permission: Send + Sync + 'static {
    const SCOPE: Scope;
}

/// The scopes as types.
pub mod may {
    macro_rules! permissions {
        ($($name:ident)*) => {$(
            #[derive(Debug, Clone, Copy)]
            pub struct $name;
            impl super::Permission for $name {
                const SCOPE: super::Scope = super::Scope::$name;
            }
        )*};
    }
    permissions! {
        OffersRead InstancesRead InstancesWrite WalletRead WalletWrite SshKeysRead SshKeysWrite KeysRead KeysWrite
        TenantRead TenantWrite
    }
}

/// Any valid credential.
#[derive(Debug, Clone)]
pub struct Caller(pub Identity);

/// A person's session.
#[derive(Debug, Clone)]
pub struct SignedIn {
    pub user_id: UserId,
    pub session_id: SessionId,
    pub tenant_id: TenantId,
    pub role: Role,
}

/// A credential that holds the scope of `P` in its tenant.
#[derive(Debug, Clone)]
pub struct TenantCaller<P: Permission> {
    identity: Identity,
    scope: TenantScope,
    permission: PhantomData<P>,
}

/// The operator's side.
#[derive(Debug, Clone)]
pub struct Operator {
    identity: Identity,
    request_id: Option<RequestId>,
}

impl FromRequestParts<AppState> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let identity = caller::identify(state, credential(&parts.headers)?).await?;
        if let Some(context) = parts.extensions.get::<Arc<RequestContext>>() {
            context.counted(state.limits.credential(identity.actor.id(), &identity.tenant_id))?;
        }
        Ok(Self(identity))
    }
}

impl FromRequestParts<AppState> for SignedIn {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let Caller(identity) = Caller::from_request_parts(parts, state).await?;
        match identity.actor {
            Actor::Person { user_id, session_id, role } => {
                Ok(Self { user_id, session_id, tenant_id: identity.tenant_id, role })
            }
            Actor::Key { .. } => {
                Err(ApiError::new(Code::Forbidden, "an API key cannot do this; sign in as a person"))
            }
        }
    }
}

impl<P: Permission> FromRequestParts<AppState> for TenantCaller<P> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let identity = holding(P::SCOPE, parts, state).await?;
        let scope = TenantScope::proven(identity.tenant_id.clone());
        Ok(Self { identity, scope, permission: PhantomData })
    }
}

impl FromRequestParts<AppState> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let identity = holding(Scope::Admin, parts, state).await?;
        let context = parts.extensions.get::<Arc<RequestContext>>();
        Ok(Self { identity, request_id: context.map(|context| context.id.clone()) })
    }
}

async fn holding(scope: Scope, parts: &mut Parts, state: &AppState) -> Result<Identity, ApiError> {
    let Caller(identity) = Caller::from_request_parts(parts, state).await?;
    if identity.may(scope) {
        Ok(identity)
    } else {
        Err(ApiError::new(Code::ScopeMissing, format!("this needs the scope {scope}")))
    }
}

impl<P: Permission> TenantCaller<P> {
    pub const fn tenant_id(&self) -> &TenantId {
        &self.identity.tenant_id
    }

    /// What the store wants before it touches the tenant's rows.
    pub const fn scope(&self) -> &TenantScope {
        &self.scope
    }

    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// For `created_by`.
    pub fn actor_id(&self) -> &str {
        self.identity.actor.id()
    }
}

impl Operator {
    /// The person who acts, also behind a key.
    pub const fn user_id(&self) -> &UserId {
        self.identity.actor.user_id()
    }

    /// For the operators' log.
    pub fn by(&self) -> By {
        By {
            operator_id: Some(self.user_id().clone()),
            credential_id: self.identity.actor.id().to_owned(),
            request_id: self.request_id.clone(),
        }
    }

    /// Operators act on any tenant; it may be absent, then the store finds nothing.
    pub const fn scope_of(&self, tenant_id: TenantId) -> TenantScope {
        TenantScope::proven(tenant_id)
    }

    /// The operator's own tenant, under which their calls are remembered.
    pub fn own_scope(&self) -> TenantScope {
        TenantScope::proven(self.identity.tenant_id.clone())
    }
}

/// The one credential of a request; two that differ are none.
fn credential(headers: &HeaderMap) -> Result<&str, ApiError> {
    let unauthenticated = |detail: &str| ApiError::new(Code::Unauthenticated, detail);
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let bearer = match text(header::AUTHORIZATION.as_str()).map(|value| value.split_once(' ')) {
        Some(Some((scheme, token))) if scheme.eq_ignore_ascii_case("bearer") => Some(token.trim()),
        Some(_) => return Err(unauthenticated("the Authorization header must be: Bearer <credential>")),
        None => None,
    };
    match (bearer, text(API_KEY)) {
        (Some(one), None) | (None, Some(one)) => Ok(one),
        (Some(_), Some(_)) => Err(unauthenticated("send one credential, not two")),
        (None, None) => Err(unauthenticated("send Authorization: Bearer <access token or API key>")),
    }
}
