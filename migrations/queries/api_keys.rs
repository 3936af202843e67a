//! API keys.

use sqlx::{query, query_as};
use tarn_protocol::ids::ApiKeyId;
use tarn_protocol::units::Timestamp;
use tarn_rows::api_keys::{ApiKeyRaw, ApiKeyRow};
use tarn_rows::secrets::SecretDigest;
use tarn_rows::{Page, TenantScope};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_api_key {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            ApiKeyRaw,
            "SELECT id, tenant_id, created_by, name, scopes, secret_sha256, created_at, expires_at, last_used_at,
                 revoked_at
             FROM api_keys " + $tail
            $(, $arg)*
        )
    };
}

pub async fn insert_api_key(conn: &mut Conn, scope: &TenantScope, key: &ApiKeyRow) -> Result<()> {
    let row = put(key)?;
    query!(
        "INSERT INTO api_keys (id, tenant_id, created_by, name, scopes, secret_sha256, created_at, expires_at,
             last_used_at, revoked_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        row.id,
        scope.as_str(),
        row.created_by,
        row.name,
        row.scopes,
        row.secret_sha256,
        row.created_at,
        row.expires_at,
        row.last_used_at,
        row.revoked_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The auth extractor's proof: before this there is no scope. Revoked and expired keys are returned too; the caller judges.
pub async fn api_key_by_secret(conn: &mut Conn, secret: &SecretDigest) -> Result<Option<ApiKeyRow>> {
    let raw = select_api_key!("WHERE secret_sha256 = $1", secret.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

pub async fn api_key(conn: &mut Conn, scope: &TenantScope, id: &ApiKeyId) -> Result<Option<ApiKeyRow>> {
    let raw = select_api_key!("WHERE tenant_id = $1 AND id = $2", scope.as_str(), id.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

pub async fn api_keys(
    conn: &mut Conn,
    scope: &TenantScope,
    page: Page<'_, ApiKeyId>,
) -> Result<Vec<ApiKeyRow>> {
    let raws = select_api_key!(
        "WHERE tenant_id = $1 AND id > $2 ORDER BY id LIMIT $3",
        scope.as_str(),
        page.above(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// `false`: not there, or revoked before.
pub async fn revoke_api_key(
    conn: &mut Conn,
    scope: &TenantScope,
    id: &ApiKeyId,
    now: Timestamp,
) -> Result<bool> {
    let done = query!(
        "UPDATE api_keys SET revoked_at = $3 WHERE tenant_id = $1 AND id = $2 AND revoked_at IS NULL",
        scope.as_str(),
        id.as_str(),
        now.as_micros()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Moves the last use forward, when it is older than `unless_since`: so that reads do not become one write each.
pub async fn touch_api_key(
    conn: &mut Conn,
    scope: &TenantScope,
    id: &ApiKeyId,
    now: Timestamp,
    unless_since: Timestamp,
) -> Result<bool> {
    let done = query!(
        "UPDATE api_keys SET last_used_at = $3
         WHERE tenant_id = $1 AND id = $2 AND (last_used_at IS NULL OR last_used_at < $4)",
        scope.as_str(),
        id.as_str(),
        now.as_micros(),
        unless_since.as_micros()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}
