//! Single-use tokens with which hosts join.

use sqlx::{query, query_as};
use tarn_protocol::ids::{HostId, JoinTokenId};
use tarn_protocol::units::Timestamp;
use tarn_rows::Page;
use tarn_rows::hosts::{JoinTokenRaw, JoinTokenRow};
use tarn_rows::secrets::SecretDigest;

use super::{Conn, Result, put, take, take_all};

macro_rules! select_join_token {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            JoinTokenRaw,
            "SELECT id, secret_sha256, region, created_at, expires_at, used_at, used_by_host, used_nonce
             FROM join_tokens " + $tail
            $(, $arg)*
        )
    };
}

pub async fn insert_join_token(conn: &mut Conn, token: &JoinTokenRow) -> Result<()> {
    let row = put(token)?;
    query!(
        "INSERT INTO join_tokens (id, secret_sha256, region, created_at, expires_at, used_at, used_by_host, used_nonce)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
        row.id,
        row.secret_sha256,
        row.region,
        row.created_at,
        row.expires_at,
        row.used_at,
        row.used_by_host,
        row.used_nonce
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn join_token(conn: &mut Conn, secret: &SecretDigest) -> Result<Option<JoinTokenRow>> {
    let raw = select_join_token!("WHERE secret_sha256 = $1", secret.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

pub async fn join_tokens(conn: &mut Conn, page: Page<'_, JoinTokenId>) -> Result<Vec<JoinTokenRow>> {
    let raws = select_join_token!("WHERE id > $1 ORDER BY id LIMIT $2", page.above(), page.limit());
    take_all(raws.fetch_all(conn).await?)
}

/// Uses a token up for `host` (inserted in this transaction). `false`: used before, or expired: the caller rolls the host back and
/// looks whether the stored nonce is its own.
pub async fn consume_join_token(
    conn: &mut Conn,
    id: &JoinTokenId,
    host: &HostId,
    nonce: &str,
    now: Timestamp,
) -> Result<bool> {
    let done = query!(
        "UPDATE join_tokens SET used_at = $4, used_by_host = $2, used_nonce = $3
         WHERE id = $1 AND used_at IS NULL AND expires_at > $4",
        id.as_str(),
        host.as_str(),
        nonce,
        now.as_micros()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}
