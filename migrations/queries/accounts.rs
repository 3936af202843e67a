//! Tenants, users and memberships.

use sqlx::{query, query_as};
use tarn_protocol::ids::{TenantId, UserId};
use tarn_rows::accounts::{
    MemberRaw, MemberRow, MembershipRow, Role, TenantRaw, TenantRow, UserRaw, UserRow,
};
use tarn_rows::{Page, TenantScope};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_user {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            UserRaw,
            "SELECT id, email, password_hash, operator, token_epoch, created_at FROM users " + $tail
            $(, $arg)*
        )
    };
}

macro_rules! select_tenant {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            TenantRaw,
            "SELECT id, name, quota_cards, quota_bytes, created_at FROM tenants " + $tail
            $(, $arg)*
        )
    };
}

macro_rules! select_member {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            MemberRaw,
            "SELECT m.tenant_id, t.name AS tenant_name, m.user_id, u.email, m.role, m.created_at
             FROM memberships m JOIN tenants t ON t.id = m.tenant_id JOIN users u ON u.id = m.user_id " + $tail
            $(, $arg)*
        )
    };
}

pub async fn insert_tenant(conn: &mut Conn, tenant: &TenantRow) -> Result<()> {
    let row = put(tenant)?;
    query!(
        "INSERT INTO tenants (id, name, quota_cards, quota_bytes, created_at) VALUES ($1, $2, $3, $4, $5)",
        row.id,
        row.name,
        row.quota_cards,
        row.quota_bytes,
        row.created_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn tenant(conn: &mut Conn, scope: &TenantScope) -> Result<Option<TenantRow>> {
    let raw = select_tenant!("WHERE id = $1", scope.as_str()).fetch_optional(conn).await?;
    raw.map(take).transpose()
}

/// For operators.
pub async fn tenants(conn: &mut Conn, page: Page<'_, TenantId>) -> Result<Vec<TenantRow>> {
    let raws = select_tenant!("WHERE id > $1 ORDER BY id LIMIT $2", page.above(), page.limit());
    take_all(raws.fetch_all(conn).await?)
}

/// Locks the tenant until the transaction ends: what is then read of its quota and leases stays true.
pub async fn lock_tenant(conn: &mut Conn, scope: &TenantScope) -> Result<bool> {
    let done = query!("UPDATE tenants SET name = name WHERE id = $1", scope.as_str()).execute(conn).await?;
    Ok(done.rows_affected() == 1)
}

/// For operators.
pub async fn set_tenant_quota(conn: &mut Conn, tenant: &TenantRow) -> Result<bool> {
    let row = put(tenant)?;
    let done = query!(
        "UPDATE tenants SET quota_cards = $2, quota_bytes = $3 WHERE id = $1",
        row.id,
        row.quota_cards,
        row.quota_bytes
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub async fn insert_user(conn: &mut Conn, user: &UserRow) -> Result<()> {
    let row = put(user)?;
    query!(
        "INSERT INTO users (id, email, password_hash, operator, token_epoch, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
        row.id,
        row.email,
        row.password_hash,
        row.operator,
        row.token_epoch,
        row.created_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Locks a user's row until the transaction ends, so that what is read of their doings stays true. `false`: there is no such user.
pub async fn lock_user(conn: &mut Conn, id: &UserId) -> Result<bool> {
    let done = query!("UPDATE users SET token_epoch = token_epoch WHERE id = $1", id.as_str());
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

pub async fn user(conn: &mut Conn, id: &UserId) -> Result<Option<UserRow>> {
    select_user!("WHERE id = $1", id.as_str()).fetch_optional(conn).await?.map(take).transpose()
}

/// `email` in lower case.
pub async fn user_by_email(conn: &mut Conn, email: &str) -> Result<Option<UserRow>> {
    select_user!("WHERE email = $1", email).fetch_optional(conn).await?.map(take).transpose()
}

/// Refuses every access token issued so far; returns the new epoch.
pub async fn bump_token_epoch(conn: &mut Conn, id: &UserId) -> Result<Option<i64>> {
    let bumped = query!(
        r#"UPDATE users SET token_epoch = token_epoch + 1 WHERE id = $1 RETURNING token_epoch AS "token_epoch!: i64""#,
        id.as_str()
    );
    Ok(bumped.fetch_optional(conn).await?.map(|row| row.token_epoch))
}

/// Sets the password and refuses every access token issued so far.
pub async fn set_password(conn: &mut Conn, user: &UserRow) -> Result<bool> {
    let row = put(user)?;
    let done = query!(
        "UPDATE users SET password_hash = $2, token_epoch = token_epoch + 1 WHERE id = $1",
        row.id,
        row.password_hash
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub async fn set_operator(conn: &mut Conn, id: &UserId, operator: bool) -> Result<bool> {
    let done = query!("UPDATE users SET operator = $2 WHERE id = $1", id.as_str(), operator);
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

pub async fn insert_membership(
    conn: &mut Conn,
    scope: &TenantScope,
    membership: &MembershipRow,
) -> Result<()> {
    let row = put(membership)?;
    query!(
        "INSERT INTO memberships (tenant_id, user_id, role, created_at) VALUES ($1, $2, $3, $4)",
        scope.as_str(),
        row.user_id,
        row.role,
        row.created_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// The auth extractor's proof: before this there is no scope.
pub async fn membership(conn: &mut Conn, user: &UserId, tenant: &TenantId) -> Result<Option<MemberRow>> {
    let raw = select_member!("WHERE m.user_id = $1 AND m.tenant_id = $2", user.as_str(), tenant.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// The tenants of a user, oldest membership first.
pub async fn memberships_of_user(conn: &mut Conn, user: &UserId) -> Result<Vec<MemberRow>> {
    let raws = select_member!("WHERE m.user_id = $1 ORDER BY m.created_at, m.tenant_id", user.as_str());
    take_all(raws.fetch_all(conn).await?)
}

pub async fn members(conn: &mut Conn, scope: &TenantScope, page: Page<'_, UserId>) -> Result<Vec<MemberRow>> {
    let raws = select_member!(
        "WHERE m.tenant_id = $1 AND m.user_id > $2 ORDER BY m.user_id LIMIT $3",
        scope.as_str(),
        page.above(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

pub async fn set_role(conn: &mut Conn, scope: &TenantScope, user: &UserId, role: Role) -> Result<bool> {
    let done = query!(
        "UPDATE memberships SET role = $3 WHERE tenant_id = $1 AND user_id = $2",
        scope.as_str(),
        user.as_str(),
        role.as_str()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

pub async fn delete_membership(conn: &mut Conn, scope: &TenantScope, user: &UserId) -> Result<bool> {
    let done = query!(
        "DELETE FROM memberships WHERE tenant_id = $1 AND user_id = $2",
        scope.as_str(),
        user.as_str()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}
