//! Refresh tokens.

use sqlx::{query, query_as};
use tarn_protocol::ids::{RefreshTokenId, SessionId, TenantId, UserId};
use tarn_protocol::units::Timestamp;
use tarn_rows::secrets::SecretDigest;
use tarn_rows::sessions::{RefreshTokenRaw, RefreshTokenRow, SessionProofRaw, SessionProofRow};

use super::{Conn, Result, put, take};

pub async fn insert_refresh_token(conn: &mut Conn, token: &RefreshTokenRow) -> Result<()> {
    let row = put(token)?;
    query!(
        "INSERT INTO refresh_tokens (id, session_id, user_id, tenant_id, secret_sha256, created_at, expires_at,
             rotated_at, revoked_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        row.id,
        row.session_id,
        row.user_id,
        row.tenant_id,
        row.secret_sha256,
        row.created_at,
        row.expires_at,
        row.rotated_at,
        row.revoked_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn refresh_token(conn: &mut Conn, secret: &SecretDigest) -> Result<Option<RefreshTokenRow>> {
    query_as!(
        RefreshTokenRaw,
        "SELECT id, session_id, user_id, tenant_id, secret_sha256, created_at, expires_at, rotated_at, revoked_at
         FROM refresh_tokens WHERE secret_sha256 = $1",
        secret.as_str()
    )
    .fetch_optional(conn)
    .await?
    .map(take)
    .transpose()
}

/// Marks a token used. `false`: it was rotated or revoked before, or is expired; the caller then revokes the session.
pub async fn rotate_refresh_token(conn: &mut Conn, id: &RefreshTokenId, now: Timestamp) -> Result<bool> {
    let done = query!(
        "UPDATE refresh_tokens SET rotated_at = $2
         WHERE id = $1 AND rotated_at IS NULL AND revoked_at IS NULL AND expires_at > $2",
        id.as_str(),
        now.as_micros()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Ends a login: none of its tokens refreshes again. Returns how many ended now.
pub async fn revoke_session(conn: &mut Conn, session: &SessionId, now: Timestamp) -> Result<u64> {
    let done = query!(
        "UPDATE refresh_tokens SET revoked_at = $2 WHERE session_id = $1 AND revoked_at IS NULL",
        session.as_str(),
        now.as_micros()
    );
    Ok(done.execute(conn).await?.rows_affected())
}

/// For the worker that forgets: deletes up to `limit` tokens that expired before an instant, the oldest first; how many went.
pub async fn delete_expired_refresh_tokens(conn: &mut Conn, before: Timestamp, limit: u32) -> Result<u64> {
    let done = query!(
        "DELETE FROM refresh_tokens WHERE id IN (
             SELECT id FROM refresh_tokens WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)",
        before.as_micros(),
        i64::from(limit)
    );
    Ok(done.execute(conn).await?.rows_affected())
}

/// Ends every login of a user.
pub async fn revoke_sessions_of_user(conn: &mut Conn, user: &UserId, now: Timestamp) -> Result<u64> {
    let done = query!(
        "UPDATE refresh_tokens SET revoked_at = $2 WHERE user_id = $1 AND revoked_at IS NULL",
        user.as_str(),
        now.as_micros()
    );
    Ok(done.execute(conn).await?.rows_affected())
}

/// The auth extractor's proof that a session still stands for `user` in `tenant`, in one statement. `None`: no such membership.
pub async fn session_proof(
    conn: &mut Conn,
    user: &UserId,
    tenant: &TenantId,
    session: &SessionId,
) -> Result<Option<SessionProofRow>> {
    query_as!(
        SessionProofRaw,
        r#"SELECT u.operator, u.token_epoch, m.role, EXISTS (
               SELECT 1 FROM refresh_tokens t WHERE t.session_id = $3 AND t.revoked_at IS NULL
           ) AS "live!: bool"
           FROM users u JOIN memberships m ON m.user_id = u.id WHERE u.id = $1 AND m.tenant_id = $2"#,
        user.as_str(),
        tenant.as_str(),
        session.as_str()
    )
    .fetch_optional(conn)
    .await?
    .map(take)
    .transpose()
}
