//! `/v1/ssh-keys`: public keys only.

use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use serde::{Deserialize, Serialize};
use tarn_protocol::ids::SshKeyId;
use tarn_rows::accounts::SshKeyRow;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::people::ssh_key::SshPublicKey;
use crate::app::people::ssh_keys::{self, SshKeyError};
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
        .routes(routes!(list_ssh_keys, add_ssh_key))
        .routes(routes!(get_ssh_key, delete_ssh_key))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({
    "name": "laptop",
    "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE1z0gLEWK4jSNDnQGuKtUvuS8nJ6SMdbkWLKxkCLdKC ada@laptop",
}))]
struct AddSshKeyRequest {
    name: String,
    /// One line of a `.pub` file; options are refused, the comment is dropped.
    public_key: String,
}

#[derive(Serialize, ToSchema)]
struct SshKeyDocument {
    #[schema(value_type = String, example = "ssh_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: SshKeyId,
    name: String,
    public_key: String,
    #[schema(example = "SHA256:ZW9Nv7Yx3uIu9w1wQ0x0lYpQz0o5yq0m3m6S0cS1b2c")]
    fingerprint: String,
    created_at: Instant,
}

impl From<SshKeyRow> for SshKeyDocument {
    fn from(row: SshKeyRow) -> Self {
        Self {
            id: row.id,
            name: row.name,
            public_key: row.public_key,
            fingerprint: row.fingerprint,
            created_at: row.created_at.into(),
        }
    }
}

impl From<SshKeyError> for ApiError {
    fn from(error: SshKeyError) -> Self {
        match error {
            SshKeyError::Known => Self::new(Code::AlreadyExists, error.to_string()),
            SshKeyError::TooMany => Self::new(Code::QuotaExceeded, error.to_string()),
            SshKeyError::Unknown => Self::not_found(),
            SshKeyError::Store(error) => error.into(),
        }
    }
}

/// The SSH keys of this tenant
#[utoipa::path(get, path = "/v1/ssh-keys", tag = "keys", operation_id = "list_ssh_keys", params(PageParams),
    security(("bearer" = []), ("api_key" = ["ssh-keys:read"])),
    responses((status = OK, description = "One page", body = Page<SshKeyDocument>)))]
async fn list_ssh_keys(
    State(state): State<AppState>,
    caller: TenantCaller<may::SshKeysRead>,
    page: PageWanted,
) -> ApiResult<Json<Page<SshKeyDocument>>> {
    let page = page.of(caller.tenant_id().as_str());
    let after = page.after::<SshKeyId>()?;
    let rows = state.store.reader().await?.ssh_keys(caller.scope(), page.rows(after.as_ref())).await?;
    Ok(Json(page.page(rows, |row| row.id.to_string(), SshKeyDocument::from)))
}

/// Add a public key
#[utoipa::path(post, path = "/v1/ssh-keys", tag = "keys", operation_id = "add_ssh_key",
    security(("bearer" = []), ("api_key" = ["ssh-keys:write"])),
    request_body = AddSshKeyRequest, responses((status = CREATED, description = "Added", body = SshKeyDocument)))]
async fn add_ssh_key(
    State(state): State<AppState>,
    caller: TenantCaller<may::SshKeysWrite>,
    Json(request): Json<AddSshKeyRequest>,
) -> ApiResult<(StatusCode, [(HeaderName, String); 1], Json<SshKeyDocument>)> {
    let name = tenants::name(&request.name, "/name")?;
    let key: SshPublicKey =
        request.public_key.parse().map_err(|error| ApiError::invalid("/public_key", format!("{error}")))?;
    let row = ssh_keys::add(&state, caller.scope(), name, &key).await?;
    let location = format!("/v1/ssh-keys/{}", row.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(row.into())))
}

/// One SSH key
#[utoipa::path(get, path = "/v1/ssh-keys/{ssh_key_id}", tag = "keys", operation_id = "get_ssh_key",
    params(("ssh_key_id" = String, Path)), security(("bearer" = []), ("api_key" = ["ssh-keys:read"])),
    responses((status = OK, description = "The key", body = SshKeyDocument)))]
async fn get_ssh_key(
    State(state): State<AppState>,
    caller: TenantCaller<may::SshKeysRead>,
    Path(id): Path<SshKeyId>,
) -> ApiResult<Json<SshKeyDocument>> {
    let row = state.store.reader().await?.ssh_key(caller.scope(), &id).await?;
    Ok(Json(row.ok_or_else(ApiError::not_found)?.into()))
}

/// Remove an SSH key; instances that run keep it until their next start
#[utoipa::path(delete, path = "/v1/ssh-keys/{ssh_key_id}", tag = "keys", operation_id = "delete_ssh_key",
    params(("ssh_key_id" = String, Path)), security(("bearer" = []), ("api_key" = ["ssh-keys:write"])),
    responses((status = NO_CONTENT, description = "Removed")))]
async fn delete_ssh_key(
    State(state): State<AppState>,
    caller: TenantCaller<may::SshKeysWrite>,
    Path(id): Path<SshKeyId>,
) -> ApiResult<StatusCode> {
    ssh_keys::delete(&state, caller.scope(), id).await?;
    Ok(StatusCode::NO_CONTENT)
}
