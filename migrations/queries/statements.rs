//! The ledger read by account and period: statements of tenants, revenue of Tarn. Nothing is written.

use sqlx::query_as;
use tarn_billing::money::Micros;
use tarn_protocol::ids::AccountId;
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::reports::{
    LedgerPlace, RevenueRaw, RevenueRow, StatementEntryRaw, StatementEntryRow, TurnoverRaw, TurnoverRow,
};

use super::{Conn, Result, take, take_all};

/// Entries of one of a tenant's accounts after a place and before an instant, oldest first.
pub async fn statement_entries(
    conn: &mut Conn,
    scope: &TenantScope,
    account: &AccountId,
    after: &LedgerPlace,
    before: Timestamp,
    limit: u32,
) -> Result<Vec<StatementEntryRow>> {
    let raws = query_as!(
        StatementEntryRaw,
        r#"SELECT e.transfer_id, a.kind AS account_kind, t.kind AS transfer_kind, e.amount_micros, t.segment_id,
               COALESCE(s.instance_id, d.instance_id) AS "instance_id?: String", t.grant_id, t.reverses, t.memo, e.created_at
           FROM entries e JOIN accounts a ON a.id = e.account_id JOIN transfers t ON t.id = e.transfer_id
               LEFT JOIN usage_segments s ON s.id = t.segment_id
               LEFT JOIN storage_segments d ON d.id = t.segment_id
           WHERE a.tenant_id = $1 AND e.account_id = $2 AND (e.created_at, e.transfer_id) > ($3, $4) AND e.created_at < $5
           ORDER BY e.created_at, e.transfer_id LIMIT $6"#,
        scope.as_str(),
        account.as_str(),
        after.at.as_micros(),
        after.transfer_id,
        before.as_micros(),
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// The balance of one of a tenant's accounts at a place: the sum of its entries up to there.
pub async fn balance_at(
    conn: &mut Conn,
    scope: &TenantScope,
    account: &AccountId,
    place: &LedgerPlace,
) -> Result<Micros> {
    let sum = sqlx::query!(
        r#"SELECT CAST(COALESCE(SUM(e.amount_micros), 0) AS BIGINT) AS "sum!: i64" FROM entries e
           WHERE e.account_id = (SELECT a.id FROM accounts a WHERE a.tenant_id = $1 AND a.id = $2)
               AND (e.created_at, e.transfer_id) <= ($3, $4)"#,
        scope.as_str(),
        account.as_str(),
        place.at.as_micros(),
        place.transfer_id
    );
    Ok(Micros::new(sum.fetch_one(conn).await?.sum))
}

/// What came to one of a tenant's accounts in a half-open period, and what went.
pub async fn turnover(
    conn: &mut Conn,
    scope: &TenantScope,
    account: &AccountId,
    from: Timestamp,
    to: Timestamp,
) -> Result<TurnoverRow> {
    let raw = query_as!(
        TurnoverRaw,
        r#"SELECT COUNT(*) AS "entries!: i64",
               CAST(COALESCE(SUM(CASE WHEN e.amount_micros > 0 THEN e.amount_micros END), 0) AS BIGINT) AS "in_micros!: i64",
               CAST(COALESCE(SUM(CASE WHEN e.amount_micros < 0 THEN -e.amount_micros END), 0) AS BIGINT) AS "out_micros!: i64"
           FROM entries e
           WHERE e.account_id = (SELECT a.id FROM accounts a WHERE a.tenant_id = $1 AND a.id = $2)
               AND e.created_at >= $3 AND e.created_at < $4"#,
        scope.as_str(),
        account.as_str(),
        from.as_micros(),
        to.as_micros()
    );
    take(raw.fetch_one(conn).await?)
}

/// For operators: the same of one of Tarn's own accounts.
pub async fn system_turnover(
    conn: &mut Conn,
    account: &AccountId,
    from: Timestamp,
    to: Timestamp,
) -> Result<TurnoverRow> {
    let raw = query_as!(
        TurnoverRaw,
        r#"SELECT COUNT(*) AS "entries!: i64",
               CAST(COALESCE(SUM(CASE WHEN e.amount_micros > 0 THEN e.amount_micros END), 0) AS BIGINT) AS "in_micros!: i64",
               CAST(COALESCE(SUM(CASE WHEN e.amount_micros < 0 THEN -e.amount_micros END), 0) AS BIGINT) AS "out_micros!: i64"
           FROM entries e WHERE e.account_id = $1 AND e.created_at >= $2 AND e.created_at < $3"#,
        account.as_str(),
        from.as_micros(),
        to.as_micros()
    );
    take(raw.fetch_one(conn).await?)
}

/// For operators: what one of Tarn's revenue accounts earned in a half-open period, by model of the primary, offer and purse. Every
/// entry is in exactly one row, whatever else is known of it.
pub async fn revenue(
    conn: &mut Conn,
    account: &AccountId,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<RevenueRow>> {
    let raws = query_as!(
        RevenueRaw,
        r#"SELECT a.kind AS account_kind, COALESCE(g.model, '') AS "model!: String", COALESCE(s.sku, d.sku, '') AS "sku!: String",
               p.kind AS purse_kind, COUNT(*) AS "entries!: i64",
               CAST(COALESCE(SUM(CASE WHEN e.amount_micros > 0 THEN e.amount_micros END), 0) AS BIGINT) AS "earned_micros!: i64",
               CAST(COALESCE(SUM(CASE WHEN e.amount_micros < 0 THEN -e.amount_micros END), 0) AS BIGINT)
                   AS "given_back_micros!: i64"
           FROM entries e JOIN accounts a ON a.id = e.account_id JOIN transfers t ON t.id = e.transfer_id
               JOIN accounts p ON p.id = CASE WHEN t.debit_account_id = e.account_id THEN t.credit_account_id
                   ELSE t.debit_account_id END
               LEFT JOIN usage_segments s ON s.id = t.segment_id
               LEFT JOIN storage_segments d ON d.id = t.segment_id
               LEFT JOIN gpus g ON g.uuid = s.meter_gpu_uuid
           WHERE e.account_id = $1 AND e.created_at >= $2 AND e.created_at < $3
           GROUP BY a.kind, g.model, s.sku, d.sku, p.kind ORDER BY 2, 3, 4"#,
        account.as_str(),
        from.as_micros(),
        to.as_micros()
    );
    take_all(raws.fetch_all(conn).await?)
}
