//! `/v1/tenants`: who pays, and who belongs to it.
//!
//! A path names a tenant only to be explicit: it must be the credential's own, anything else is the 404 of an absent one.

use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use serde::{Deserialize, Serialize};
use tarn_protocol::ids::{TenantId, UserId};
use tarn_rows::accounts::{MemberRow, Role, TenantRow};
use utoipa::ToSchema;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::people::members::{self, Changer, MemberError};
use crate::app::people::tenants::{self, CreateTenantError};
use crate::auth::caller::Actor;
use crate::http::error::{ApiError, ApiResult, Code};
use crate::http::extract::body::Json;
use crate::http::extract::caller::{Permission, SignedIn, TenantCaller, may};
use crate::http::extract::page::{Page, PageParams, PageWanted};
use crate::http::extract::path::Path;
use crate::http::instant::Instant;
use crate::state::AppState;

pub const NAME_CHARACTERS_MAX: usize = 100;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list_tenants, create_tenant))
        .routes(routes!(get_tenant))
        .routes(routes!(list_members, add_member))
        .routes(routes!(set_member_role, remove_member))
}

/// A name that people read: trimmed, of printable characters.
pub(crate) fn name(text: &str, pointer: &str) -> ApiResult<String> {
    let name = text.trim();
    let length = name.chars().count();
    if (1..=NAME_CHARACTERS_MAX).contains(&length) && !name.chars().any(char::is_control) {
        Ok(name.to_owned())
    } else {
        Err(ApiError::invalid(pointer, format!("1 to {NAME_CHARACTERS_MAX} printable characters")))
    }
}

/// The words of [`Role`].
pub(crate) fn role_schema() -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(Role::ALL.iter().map(|role| role.as_str())))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"name": "Analytical Engines"}))]
struct CreateTenantRequest {
    name: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"email": "grace@example.com", "role": "member"}))]
struct AddMemberRequest {
    /// Of someone who has signed up.
    email: String,
    #[schema(schema_with = role_schema)]
    role: Role,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"role": "viewer"}))]
struct SetRoleRequest {
    #[schema(schema_with = role_schema)]
    role: Role,
}

#[derive(Serialize, ToSchema)]
pub(crate) struct TenantDocument {
    #[schema(value_type = String, example = "ten_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: TenantId,
    name: String,
    /// Cards that may be leased at once, metered or not.
    quota_cards: u32,
    /// Their nominal memory.
    quota_bytes: u64,
    created_at: Instant,
}

impl From<TenantRow> for TenantDocument {
    fn from(row: TenantRow) -> Self {
        Self {
            id: row.id,
            name: row.name,
            quota_cards: row.quota_cards,
            quota_bytes: row.quota_bytes.get(),
            created_at: row.created_at.into(),
        }
    }
}

/// A tenant you belong to.
#[derive(Serialize, ToSchema)]
struct MembershipDocument {
    #[schema(value_type = String, example = "ten_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    tenant_id: TenantId,
    tenant_name: String,
    #[schema(schema_with = role_schema)]
    role: Role,
    /// When you joined.
    created_at: Instant,
}

#[derive(Serialize, ToSchema)]
struct MemberDocument {
    #[schema(value_type = String, example = "usr_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    user_id: UserId,
    email: String,
    #[schema(schema_with = role_schema)]
    role: Role,
    created_at: Instant,
}

impl From<MemberRow> for MemberDocument {
    fn from(row: MemberRow) -> Self {
        Self { user_id: row.user_id, email: row.email, role: row.role, created_at: row.created_at.into() }
    }
}

impl From<MemberError> for ApiError {
    fn from(error: MemberError) -> Self {
        match error {
            MemberError::Unknown => Self::not_found(),
            MemberError::AlreadyMember => Self::new(Code::AlreadyExists, error.to_string()),
            MemberError::OwnersOnly => Self::new(Code::Forbidden, error.to_string()),
            MemberError::LastOwner | MemberError::TooMany => Self::new(Code::WrongState, error.to_string()),
            MemberError::Store(error) => error.into(),
        }
    }
}

impl From<CreateTenantError> for ApiError {
    fn from(error: CreateTenantError) -> Self {
        match error {
            CreateTenantError::TooMany => Self::new(Code::QuotaExceeded, error.to_string()),
            CreateTenantError::Funding(error) => error.into(),
            CreateTenantError::Store(error) => error.into(),
        }
    }
}

/// The credential's tenant, if the path names it.
fn own<P: Permission>(caller: &TenantCaller<P>, named: &TenantId) -> ApiResult<()> {
    if caller.tenant_id() == named { Ok(()) } else { Err(ApiError::not_found()) }
}

fn changer<P: Permission>(caller: &TenantCaller<P>) -> Changer {
    match caller.identity().actor {
        Actor::Person { role, .. } => Some(role),
        Actor::Key { .. } => None,
    }
}

/// The tenants you belong to
#[utoipa::path(get, path = "/v1/tenants", tag = "tenants", operation_id = "list_tenants", security(("bearer" = [])),
    responses((status = OK, description = "All of them", body = Page<MembershipDocument>)))]
async fn list_tenants(
    State(state): State<AppState>,
    caller: SignedIn,
) -> ApiResult<Json<Page<MembershipDocument>>> {
    let rows = state.store.reader().await?.memberships_of_user(&caller.user_id).await?;
    let items = rows.into_iter().map(|row| MembershipDocument {
        tenant_id: row.tenant_id,
        tenant_name: row.tenant_name,
        role: row.role,
        created_at: row.created_at.into(),
    });
    Ok(Json(Page { items: items.collect(), next_cursor: None }))
}

/// Create a further tenant that you own
#[utoipa::path(post, path = "/v1/tenants", tag = "tenants", operation_id = "create_tenant", security(("bearer" = [])),
    request_body = CreateTenantRequest, responses((status = CREATED, description = "Created", body = TenantDocument)))]
async fn create_tenant(
    State(state): State<AppState>,
    caller: SignedIn,
    Json(request): Json<CreateTenantRequest>,
) -> ApiResult<(StatusCode, [(HeaderName, String); 1], Json<TenantDocument>)> {
    let name = name(&request.name, "/name")?;
    let tenant = tenants::create_tenant(&state, caller.user_id, name).await?;
    let location = format!("/v1/tenants/{}", tenant.id);
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(tenant.into())))
}

/// The tenant of this credential
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}", tag = "tenants", operation_id = "get_tenant",
    params(("tenant_id" = String, Path)), security(("bearer" = []), ("api_key" = ["tenant:read"])),
    responses((status = OK, description = "The tenant", body = TenantDocument)))]
async fn get_tenant(
    State(state): State<AppState>,
    caller: TenantCaller<may::TenantRead>,
    Path(tenant_id): Path<TenantId>,
) -> ApiResult<Json<TenantDocument>> {
    own(&caller, &tenant_id)?;
    let row = state.store.reader().await?.tenant(caller.scope()).await?;
    Ok(Json(row.ok_or_else(ApiError::not_found)?.into()))
}

/// The members of a tenant
#[utoipa::path(get, path = "/v1/tenants/{tenant_id}/members", tag = "tenants", operation_id = "list_members",
    params(("tenant_id" = String, Path), PageParams), security(("bearer" = []), ("api_key" = ["tenant:read"])),
    responses((status = OK, description = "One page", body = Page<MemberDocument>)))]
async fn list_members(
    State(state): State<AppState>,
    caller: TenantCaller<may::TenantRead>,
    Path(tenant_id): Path<TenantId>,
    page: PageWanted,
) -> ApiResult<Json<Page<MemberDocument>>> {
    own(&caller, &tenant_id)?;
    let page = page.of(tenant_id.as_str());
    let after = page.after::<UserId>()?;
    let rows = state.store.reader().await?.members(caller.scope(), page.rows(after.as_ref())).await?;
    Ok(Json(page.page(rows, |row| row.user_id.to_string(), MemberDocument::from)))
}

/// Add a person who has signed up
#[utoipa::path(post, path = "/v1/tenants/{tenant_id}/members", tag = "tenants", operation_id = "add_member",
    params(("tenant_id" = String, Path)), security(("bearer" = []), ("api_key" = ["tenant:write"])),
    request_body = AddMemberRequest, responses((status = CREATED, description = "Added", body = MemberDocument)))]
async fn add_member(
    State(state): State<AppState>,
    caller: TenantCaller<may::TenantWrite>,
    Path(tenant_id): Path<TenantId>,
    Json(request): Json<AddMemberRequest>,
) -> ApiResult<(StatusCode, Json<MemberDocument>)> {
    own(&caller, &tenant_id)?;
    let email = request.email.parse().map_err(|error| ApiError::invalid("/email", format!("{error}")))?;
    let member = members::add(&state, caller.scope(), changer(&caller), email, request.role).await?;
    Ok((StatusCode::CREATED, Json(member.into())))
}

/// Change a member's role
#[utoipa::path(patch, path = "/v1/tenants/{tenant_id}/members/{user_id}", tag = "tenants", operation_id = "set_member_role",
    params(("tenant_id" = String, Path), ("user_id" = String, Path)),
    security(("bearer" = []), ("api_key" = ["tenant:write"])),
    request_body = SetRoleRequest, responses((status = OK, description = "Changed", body = MemberDocument)))]
async fn set_member_role(
    State(state): State<AppState>,
    caller: TenantCaller<may::TenantWrite>,
    Path((tenant_id, user_id)): Path<(TenantId, UserId)>,
    Json(request): Json<SetRoleRequest>,
) -> ApiResult<Json<MemberDocument>> {
    own(&caller, &tenant_id)?;
    let member = members::set_role(&state, caller.scope(), changer(&caller), user_id, request.role).await?;
    Ok(Json(member.into()))
}

/// Remove a member; their sessions for this tenant end at once
#[utoipa::path(delete, path = "/v1/tenants/{tenant_id}/members/{user_id}", tag = "tenants", operation_id = "remove_member",
    params(("tenant_id" = String, Path), ("user_id" = String, Path)),
    security(("bearer" = []), ("api_key" = ["tenant:write"])),
    responses((status = NO_CONTENT, description = "Removed")))]
async fn remove_member(
    State(state): State<AppState>,
    caller: TenantCaller<may::TenantWrite>,
    Path((tenant_id, user_id)): Path<(TenantId, UserId)>,
) -> ApiResult<StatusCode> {
    own(&caller, &tenant_id)?;
    members::remove(&state, caller.scope(), changer(&caller), user_id).await?;
    Ok(StatusCode::NO_CONTENT)
}
