//! `/v1/api-keys`

use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use serde::{Deserialize, Serialize};
use tarn_protocol::ids::{ApiKeyId, UserId};
use tarn_rows::api_keys::ApiKeyRow;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::people::api_keys::{self, ApiKeyError, NewApiKey};
use crate::auth::scope::Scope;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{TenantCaller, may};
use crate::http::extract::page::{Page, PageParams, PageWanted};
use crate::http::extract::path::Path;
use crate::http::instant::Instant;
use crate::http::tenants;
use crate::state::AppState;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_api_keys, create_api_key))
        .routes(routes!(get_api_key, revoke_api_key))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "ci", "scopes": ["instances:read", "instances:write"]}))]
struct CreateApiKeyRequest {
    name: String,
    /// Of those that you hold yourself.
    scopes: Vec<Scope>,
    /// Never, if absent.
    expires_at: Option<Instant>,
}

#[derive(Serialize, ToSchema)]
struct ApiKeyDocument {
    #[schema(value_type = String, example = "key_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: ApiKeyId,
    name: String,
    scopes: Vec<String>,
    #[schema(value_type = String, example = "usr_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    created_by: UserId,
    created_at: Instant,
    expires_at: Option<Instant>,
    /// To about a minute.
    last_used_at: Option<Instant>,
    revoked_at: Option<Instant>,
}

/// A new key with its secret, which is shown this once.
#[derive(Serialize, ToSchema)]
struct NewApiKeyDocument {
    #[serde(flatten)]
    key: ApiKeyDocument,
    #[schema(example = "tarn_4nDT0fQxqGYqCvGdkVlnoCZuzgQUgh0jVdBg")]
    secret: String,
}

impl From<ApiKeyRow> for ApiKeyDocument {
    fn from(row: ApiKeyRow) -> Self {
        Self {
            id: row.id,
            name: row.name,
            scopes: row.scopes.0,
            created_by: row.created_by,
            created_at: row.created_at.into(),
            expires_at: row.expires_at.map(Instant),
            last_used_at: row.last_used_at.map(Instant),
            revoked_at: row.revoked_at.map(Instant),
        }
    }
}

impl From<ApiKeyError> for ApiError {
    fn from(error: ApiKeyError) -> Self {
        match error {
            ApiKeyError::NoScopes => Self::invalid("/scopes", error.to_string()),
            ApiKeyError::Expired => Self::invalid("/expires_at", error.to_string()),
            ApiKeyError::BeyondMaker => Self::new(Code::Forbidden, error.to_string()),
            ApiKeyError::Unknown => Self::not_found(),
            ApiKeyError::Store(error) => error.into(),
        }
    }
}

/// The API keys of this tenant, revoked ones included
#[utoipa::path(get, path = "/v1/api-keys", tag = "keys", operation_id = "list_api_keys", params(PageParams),
    security(("bearer" = []), ("api_key" = ["keys:read"])),
    responses((status = OK, description = "One page", body = Page<ApiKeyDocument>)))]
async fn list_api_keys(
    State(state): State<AppState>,
    caller: TenantCaller<may::KeysRead>,
    page: PageWanted,
) -> ApiResult<Json<Page<ApiKeyDocument>>> {
    let page = page.of(caller.tenant_id().as_str());
    let after = page.after::<ApiKeyId>()?;
    let rows = state.store.reader().await?.api_keys(caller.scope(), page.rows(after.as_ref())).await?;
    Ok(Json(page.page(rows, |row| row.id.to_string(), ApiKeyDocument::from)))
}

/// Make an API key; its secret is in this answer and never again
#[utoipa::path(post, path = "/v1/api-keys", tag = "keys", operation_id = "create_api_key",
    security(("bearer" = []), ("api_key" = ["keys:write"])),
    request_body = CreateApiKeyRequest, responses((status = CREATED, description = "Made", body = NewApiKeyDocument)))]
async fn create_api_key(
    State(state): State<AppState>,
    caller: TenantCaller<may::KeysWrite>,
    Json(request): Json<CreateApiKeyRequest>,
) -> ApiResult<(StatusCode, [(HeaderName, String); 1], Json<NewApiKeyDocument>)> {
    let wish = NewApiKey {
        name: tenants::name(&request.name, "/name")?,
        scopes: request.scopes.into_iter().collect(),
        expires_at: request.expires_at.map(|Instant(at)| at),
    };
    let (row, secret) = api_keys::create(&state, caller.scope(), caller.identity(), wish).await?;
    let location = format!("/v1/api-keys/{}", row.id);
    let document = NewApiKeyDocument { key: row.into(), secret: secret.reveal().to_owned() };
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(document)))
}

/// One API key, without its secret
#[utoipa::path(get, path = "/v1/api-keys/{key_id}", tag = "keys", operation_id = "get_api_key",
    params(("key_id" = String, Path)), security(("bearer" = []), ("api_key" = ["keys:read"])),
    responses((status = OK, description = "The key", body = ApiKeyDocument)))]
async fn get_api_key(
    State(state): State<AppState>,
    caller: TenantCaller<may::KeysRead>,
    Path(id): Path<ApiKeyId>,
) -> ApiResult<Json<ApiKeyDocument>> {
    let row = state.store.reader().await?.api_key(caller.scope(), &id).await?;
    Ok(Json(row.ok_or_else(ApiError::not_found)?.into()))
}

/// Revoke an API key, at once
#[utoipa::path(delete, path = "/v1/api-keys/{key_id}", tag = "keys", operation_id = "revoke_api_key",
    params(("key_id" = String, Path)), security(("bearer" = []), ("api_key" = ["keys:write"])),
    responses((status = NO_CONTENT, description = "Revoked")))]
async fn revoke_api_key(
    State(state): State<AppState>,
    caller: TenantCaller<may::KeysWrite>,
    Path(id): Path<ApiKeyId>,
) -> ApiResult<StatusCode> {
    api_keys::revoke(&state, caller.scope(), id).await?;
    Ok(StatusCode::NO_CONTENT)
}
