//! `/v1/auth`: signing up, in and out.

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use tarn_protocol::ids::{TenantId, UserId};
use tarn_rows::accounts::Role;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::people::sessions::{self, Session, SessionError};
use crate::app::people::sign_up::{self, SignUp, SignUpError};
use crate::auth::caller::Actor;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{Caller, SignedIn};
use crate::http::extract::sign_in::SignInAttempt;
use crate::http::tenants::role_schema;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(sign_up))
        .routes(routes!(log_in))
        .routes(routes!(refresh))
        .routes(routes!(log_out))
        .routes(routes!(switch))
        .routes(routes!(get_me))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"email": "ada@example.com", "password": "correct horse battery", "tenant_name": "Analytical Engines"}))]
struct SignUpRequest {
    email: String,
    /// 8 characters at least.
    password: String,
    /// Defaults to the email address.
    tenant_name: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"email": "ada@example.com", "password": "correct horse battery"}))]
struct LogInRequest {
    email: String,
    password: String,
    /// The tenant to act for; the one joined first if absent.
    #[schema(value_type = Option<String>)]
    tenant_id: Option<TenantId>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"refresh_token": "tarn_refresh_0123456789abcdefghijABCDEFGHIJ0123456789"}))]
struct RefreshRequest {
    refresh_token: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"tenant_id": "ten_01jf3z6v5w9x8y7z6a5b4c3d2e"}))]
struct SwitchRequest {
    #[schema(value_type = String)]
    tenant_id: TenantId,
}

/// Tokens of a session. Keep both secret.
#[derive(Serialize, ToSchema)]
pub(crate) struct SessionDocument {
    /// Send as `Authorization: Bearer …`.
    access_token: String,
    expires_in_seconds: i64,
    /// Works once; refreshing gives the next.
    refresh_token: String,
    me: MeDocument,
}

/// Who a credential is.
#[derive(Serialize, ToSchema)]
pub(crate) struct MeDocument {
    #[schema(value_type = String, example = "usr_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    user_id: UserId,
    #[serde(skip_serializing_if = "Option::is_none")]
    email: Option<String>,
    #[schema(value_type = String, example = "ten_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    tenant_id: TenantId,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant_name: Option<String>,
    /// Absent for an API key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = role_schema)]
    role: Option<Role>,
    scopes: Vec<crate::auth::scope::Scope>,
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::WrongLogin => Self::new(Code::InvalidLogin, "check both; after that, sign up"),
            SessionError::Ended => Self::new(Code::Unauthenticated, "the session has ended; log in again"),
            SessionError::OtherTenant => Self::not_found(),
            SessionError::Password(error) => Self::internal(error),
            SessionError::Token(error) => Self::internal(error),
            SessionError::Store(error) => error.into(),
        }
    }
}

impl From<SignUpError> for ApiError {
    fn from(error: SignUpError) -> Self {
        match error {
            SignUpError::EmailTaken => Self::new(Code::AlreadyExists, "this email has an account; log in"),
            SignUpError::Password(error) => Self::internal(error),
            SignUpError::Grant(error) => Self::internal(error),
            SignUpError::Funding(error) => error.into(),
            SignUpError::Session(error) => error.into(),
            SignUpError::Store(error) => error.into(),
        }
    }
}

fn document(state: &AppState, session: Session) -> SessionDocument {
    let member = session.member;
    let mut scopes = crate::auth::role::scopes_of(member.role);
    if session.operator {
        scopes = scopes.with(crate::auth::scope::Scope::Admin);
    }
    SessionDocument {
        access_token: session.access_token,
        expires_in_seconds: state.auth.tokens.lifetime_seconds(),
        refresh_token: session.refresh_token,
        me: MeDocument {
            user_id: member.user_id,
            email: Some(member.email),
            tenant_id: member.tenant_id,
            tenant_name: Some(member.tenant_name),
            role: Some(member.role),
            scopes: scopes.iter().collect(),
        },
    }
}

/// Sign up: a person, their tenant and 10.00 CNY of trial credit
#[utoipa::path(post, path = "/v1/auth/signup", tag = "sessions", operation_id = "sign_up", security(()),
    request_body = SignUpRequest, responses((status = CREATED, description = "Signed up and in", body = SessionDocument)))]
async fn sign_up(
    State(state): State<AppState>,
    _: SignInAttempt,
    Json(request): Json<SignUpRequest>,
) -> ApiResult<(StatusCode, Json<SessionDocument>)> {
    let email = request.email.parse().map_err(|error| ApiError::invalid("/email", format!("{error}")))?;
    let password =
        request.password.parse().map_err(|error| ApiError::invalid("/password", format!("{error}")))?;
    let tenant_name =
        crate::http::tenants::name(request.tenant_name.as_ref().unwrap_or(&request.email), "/tenant_name")?;
    let session = sign_up::sign_up(&state, SignUp { email, password, tenant_name }).await?;
    Ok((StatusCode::CREATED, Json(document(&state, session))))
}

/// Log in
#[utoipa::path(post, path = "/v1/auth/login", tag = "sessions", operation_id = "log_in", security(()),
    request_body = LogInRequest, responses((status = OK, description = "Signed in", body = SessionDocument)))]
async fn log_in(
    State(state): State<AppState>,
    _: SignInAttempt,
    Json(request): Json<LogInRequest>,
) -> ApiResult<Json<SessionDocument>> {
    if request.password.len() > crate::app::people::email::PASSWORD_BYTES_MAX {
        return Err(SessionError::WrongLogin.into());
    }
    let email = request.email.to_lowercase();
    let session = sessions::log_in(&state, email, request.password, request.tenant_id).await?;
    Ok(Json(document(&state, session)))
}

/// Trade a refresh token for new tokens
#[utoipa::path(post, path = "/v1/auth/refresh", tag = "sessions", operation_id = "refresh_session", security(()),
    request_body = RefreshRequest, responses((status = OK, description = "The next tokens", body = SessionDocument)))]
async fn refresh(
    State(state): State<AppState>,
    _: SignInAttempt,
    Json(request): Json<RefreshRequest>,
) -> ApiResult<Json<SessionDocument>> {
    let session = sessions::refresh(&state, &request.refresh_token).await?;
    Ok(Json(document(&state, session)))
}

/// End this session: its tokens are refused from here on
#[utoipa::path(post, path = "/v1/auth/logout", tag = "sessions", operation_id = "log_out", security(("bearer" = [])),
    responses((status = NO_CONTENT, description = "Ended")))]
async fn log_out(State(state): State<AppState>, caller: SignedIn) -> ApiResult<StatusCode> {
    sessions::log_out(&state, caller.session_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Act for another of your tenants, in a session of its own
#[utoipa::path(post, path = "/v1/auth/switch", tag = "sessions", operation_id = "switch_tenant", security(("bearer" = [])),
    request_body = SwitchRequest, responses((status = OK, description = "Signed in there", body = SessionDocument)))]
async fn switch(
    State(state): State<AppState>,
    caller: SignedIn,
    Json(request): Json<SwitchRequest>,
) -> ApiResult<Json<SessionDocument>> {
    let session = sessions::switch(&state, caller.user_id, request.tenant_id).await?;
    Ok(Json(document(&state, session)))
}

/// Who this credential is
#[utoipa::path(get, path = "/v1/auth/me", tag = "sessions", operation_id = "get_me",
    security(("bearer" = []), ("api_key" = [])),
    responses((status = OK, description = "The caller", body = MeDocument)))]
async fn get_me(Caller(identity): Caller) -> Json<MeDocument> {
    let role = match identity.actor {
        Actor::Person { role, .. } => Some(role),
        Actor::Key { .. } => None,
    };
    Json(MeDocument {
        user_id: identity.actor.user_id().clone(),
        email: None,
        tenant_name: None,
        role,
        scopes: identity.scopes.iter().collect(),
        tenant_id: identity.tenant_id,
    })
}
