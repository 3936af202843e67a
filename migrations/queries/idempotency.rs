//! Stored answers of mutating calls.

use sqlx::{query, query_as};
use tarn_rows::TenantScope;
use tarn_rows::idempotency::{IdempotencyRaw, IdempotencyRow};

use super::{Conn, Result, put, take};

pub async fn idempotent_answer(
    conn: &mut Conn,
    scope: &TenantScope,
    key: &str,
) -> Result<Option<IdempotencyRow>> {
    query_as!(
        IdempotencyRaw,
        "SELECT tenant_id, key, route, body_sha256, status, response, created_at
         FROM idempotency_keys WHERE tenant_id = $1 AND key = $2",
        scope.as_str(),
        key
    )
    .fetch_optional(conn)
    .await?
    .map(take)
    .transpose()
}

/// Stores an answer beside its effect, in one transaction. `false`: another call with this key committed first; the caller rolls
/// its effect back and replays that answer. While that other call is uncommitted, this waits for it.
pub async fn insert_idempotent_answer(
    conn: &mut Conn,
    scope: &TenantScope,
    answer: &IdempotencyRow,
) -> Result<bool> {
    let row = put(answer)?;
    let done = query!(
        "INSERT INTO idempotency_keys (tenant_id, key, route, body_sha256, status, response, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant_id, key) DO NOTHING",
        scope.as_str(),
        row.key,
        row.route,
        row.body_sha256,
        row.status,
        row.response,
        row.created_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Completes an answer that this transaction claimed with [`insert_idempotent_answer`] before its effect.
pub async fn finish_idempotent_answer(
    conn: &mut Conn,
    scope: &TenantScope,
    answer: &IdempotencyRow,
) -> Result<bool> {
    let row = put(answer)?;
    let done = query!(
        "UPDATE idempotency_keys SET status = $3, response = $4
         WHERE tenant_id = $1 AND key = $2 AND route = $5 AND body_sha256 = $6",
        scope.as_str(),
        row.key,
        row.status,
        row.response,
        row.route,
        row.body_sha256
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}
