//! Money given back, and the walls around it: what of a transfer is reversed, what a tenant owes.

use sqlx::{query, query_as};
use tarn_billing::money::Micros;
use tarn_protocol::ids::{RefundId, SegmentId, TransferId};
use tarn_protocol::units::Timestamp;
use tarn_rows::payments::{RefundRaw, RefundRow};
use tarn_rows::{Page, TenantScope};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_refund {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            RefundRaw,
            "SELECT id, tenant_id, segment_id, top_up_id, amount_micros, state, failure, external_id, reason,
                 requested_by, created_at, asks, ask_at, resolved_at
             FROM refunds " + $tail
            $(, $arg)*
        )
    };
}

pub async fn insert_refund(conn: &mut Conn, scope: &TenantScope, refund: &RefundRow) -> Result<()> {
    let row = put(refund)?;
    query!(
        "INSERT INTO refunds (id, tenant_id, segment_id, top_up_id, amount_micros, state, failure, external_id, reason,
             requested_by, created_at, asks, ask_at, resolved_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
        row.id,
        scope.as_str(),
        row.segment_id,
        row.top_up_id,
        row.amount_micros,
        row.state,
        row.failure,
        row.external_id,
        row.reason,
        row.requested_by,
        row.created_at,
        row.asks,
        row.ask_at,
        row.resolved_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Writes what may change of a refund, if it is still pending; cash that was paid out may also have come back. `false`: it was resolved
/// meanwhile; nothing changed.
pub async fn update_refund(conn: &mut Conn, scope: &TenantScope, refund: &RefundRow) -> Result<bool> {
    let row = put(refund)?;
    let done = query!(
        "UPDATE refunds SET state = $3, failure = $4, external_id = $5, asks = $6, ask_at = $7, resolved_at = $8
         WHERE tenant_id = $1 AND id = $2
             AND (state = 'pending' OR (state = 'settled' AND top_up_id IS NOT NULL AND $3 <> 'pending'))",
        scope.as_str(),
        row.id,
        row.state,
        row.failure,
        row.external_id,
        row.asks,
        row.ask_at,
        row.resolved_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Newest first.
pub async fn refunds(
    conn: &mut Conn,
    scope: &TenantScope,
    page: Page<'_, RefundId>,
) -> Result<Vec<RefundRow>> {
    let raws = select_refund!(
        "WHERE tenant_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3",
        scope.as_str(),
        page.below(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

pub async fn refund(conn: &mut Conn, scope: &TenantScope, id: &RefundId) -> Result<Option<RefundRow>> {
    let raw = select_refund!("WHERE tenant_id = $1 AND id = $2", scope.as_str(), id.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// What of a segment's charges was given back.
pub async fn refunded_of_segment(
    conn: &mut Conn,
    scope: &TenantScope,
    segment: &SegmentId,
) -> Result<Micros> {
    let sum = query!(
        r#"SELECT CAST(COALESCE(SUM(amount_micros), 0) AS BIGINT) AS "sum!: i64"
           FROM refunds WHERE tenant_id = $1 AND segment_id = $2 AND state = 'settled'"#,
        scope.as_str(),
        segment.as_str()
    );
    Ok(Micros::new(sum.fetch_one(conn).await?.sum))
}

/// For the worker that asks the provider: of any tenant, the longest due first.
pub async fn refunds_due(conn: &mut Conn, now: Timestamp, limit: u32) -> Result<Vec<RefundRow>> {
    let raws = select_refund!(
        "WHERE state = 'pending' AND ask_at <= $1 ORDER BY ask_at, id LIMIT $2",
        now.as_micros(),
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// For the same worker: cash that was paid out and may have come back.
pub async fn refunds_paid_due(conn: &mut Conn, now: Timestamp, limit: u32) -> Result<Vec<RefundRow>> {
    let raws = select_refund!(
        "WHERE state = 'settled' AND top_up_id IS NOT NULL AND ask_at <= $1 ORDER BY ask_at, id LIMIT $2",
        now.as_micros(),
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// For callbacks: has the worker ask about a refund at its next tick.
pub async fn refund_ask_now(conn: &mut Conn, external_id: &str) -> Result<bool> {
    let done = query!(
        "UPDATE refunds SET ask_at = 0
         WHERE external_id = $1 AND top_up_id IS NOT NULL AND state IN ('pending', 'settled')",
        external_id
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// What of a transfer is taken back so far.
pub async fn reversed_of_transfer(conn: &mut Conn, id: &TransferId) -> Result<Micros> {
    let row = query!("SELECT reversed_micros FROM reversed_transfers WHERE transfer_id = $1", id.as_str());
    Ok(Micros::new(row.fetch_optional(conn).await?.map_or(0, |row| row.reversed_micros)))
}

/// Takes back `amount` of a transfer that moved `original`; a negative amount lets it stand again. `false`: that would be more than
/// is left of it; nothing changed.
pub async fn reverse_transfer(
    conn: &mut Conn,
    id: &TransferId,
    original: Micros,
    amount: Micros,
) -> Result<bool> {
    query!(
        "INSERT INTO reversed_transfers (transfer_id, original_micros, reversed_micros) VALUES ($1, $2, 0)
         ON CONFLICT (transfer_id) DO NOTHING",
        id.as_str(),
        original.get()
    )
    .execute(&mut *conn)
    .await?;
    let done = query!(
        "UPDATE reversed_transfers SET reversed_micros = reversed_micros + $2
         WHERE transfer_id = $1 AND reversed_micros + $2 BETWEEN 0 AND original_micros",
        id.as_str(),
        amount.get()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// What a tenant owes beyond its wallets.
pub async fn owed(conn: &mut Conn, scope: &TenantScope) -> Result<Micros> {
    let row = query!("SELECT owed_micros FROM debts WHERE tenant_id = $1", scope.as_str());
    Ok(Micros::new(row.fetch_optional(conn).await?.map_or(0, |row| row.owed_micros)))
}

/// For audits: what all tenants owe together.
pub async fn owed_by_all(conn: &mut Conn) -> Result<Micros> {
    let sum = query!(r#"SELECT CAST(COALESCE(SUM(owed_micros), 0) AS BIGINT) AS "sum!: i64" FROM debts"#);
    Ok(Micros::new(sum.fetch_one(conn).await?.sum))
}

/// Adds to what a tenant owes, or takes from it. `false`: it does not owe that much; nothing changed.
pub async fn add_debt(conn: &mut Conn, scope: &TenantScope, change: Micros) -> Result<bool> {
    query!(
        "INSERT INTO debts (tenant_id, owed_micros) VALUES ($1, 0) ON CONFLICT (tenant_id) DO NOTHING",
        scope.as_str()
    )
    .execute(&mut *conn)
    .await?;
    let done = query!(
        "UPDATE debts SET owed_micros = owed_micros + $2 WHERE tenant_id = $1 AND owed_micros + $2 >= 0",
        scope.as_str(),
        change.get()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}
