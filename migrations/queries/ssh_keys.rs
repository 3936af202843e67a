//! SSH public keys of a tenant.

use sqlx::{query, query_as};
use tarn_protocol::ids::SshKeyId;
use tarn_rows::accounts::{SshKeyRaw, SshKeyRow};
use tarn_rows::{Page, TenantScope};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_ssh_key {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            SshKeyRaw,
            "SELECT id, tenant_id, name, public_key, fingerprint, created_at FROM ssh_keys " + $tail
            $(, $arg)*
        )
    };
}

pub async fn insert_ssh_key(conn: &mut Conn, scope: &TenantScope, key: &SshKeyRow) -> Result<()> {
    let row = put(key)?;
    query!(
        "INSERT INTO ssh_keys (id, tenant_id, name, public_key, fingerprint, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
        row.id,
        scope.as_str(),
        row.name,
        row.public_key,
        row.fingerprint,
        row.created_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn ssh_key(conn: &mut Conn, scope: &TenantScope, id: &SshKeyId) -> Result<Option<SshKeyRow>> {
    let raw = select_ssh_key!("WHERE tenant_id = $1 AND id = $2", scope.as_str(), id.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

pub async fn ssh_keys(
    conn: &mut Conn,
    scope: &TenantScope,
    page: Page<'_, SshKeyId>,
) -> Result<Vec<SshKeyRow>> {
    let raws = select_ssh_key!(
        "WHERE tenant_id = $1 AND id > $2 ORDER BY id LIMIT $3",
        scope.as_str(),
        page.above(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

pub async fn delete_ssh_key(conn: &mut Conn, scope: &TenantScope, id: &SshKeyId) -> Result<bool> {
    let done = query!("DELETE FROM ssh_keys WHERE tenant_id = $1 AND id = $2", scope.as_str(), id.as_str());
    Ok(done.execute(conn).await?.rows_affected() == 1)
}
