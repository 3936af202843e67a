//! The ledger as a journal for other bookkeeping programs reads it: all tenants, up to an instant. For operators, inside one snapshot.

use sqlx::query_as;
use tarn_protocol::units::Timestamp;
use tarn_rows::audit::{AccountSumRaw, AccountSumRow};
use tarn_rows::ledger::{TransferRaw, TransferRow};

use super::{Conn, Result, take_all};

/// In order of id, those after `after` and made before `until`.
pub async fn journal_transfers(
    conn: &mut Conn,
    after: &str,
    until: Timestamp,
    limit: u32,
) -> Result<Vec<TransferRow>> {
    let raws = query_as!(
        TransferRaw,
        "SELECT id, kind, debit_account_id, credit_account_id, amount_micros, tenant_id, segment_id, grant_id,
             reverses, external_provider, external_id, memo, created_at
         FROM transfers WHERE id > $1 AND created_at < $2 ORDER BY id LIMIT $3",
        after,
        until.as_micros(),
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// What the entries of the accounts `(after, upto]` sum to that have a sequence and were made before `until`.
pub async fn journal_wallet_sums(
    conn: &mut Conn,
    after: &str,
    upto: &str,
    until: Timestamp,
) -> Result<Vec<AccountSumRow>> {
    let raws = query_as!(
        AccountSumRaw,
        r#"SELECT account_id, CAST(SUM(amount_micros) AS BIGINT) AS "sum_micros!: i64" FROM entries
           WHERE seq IS NOT NULL AND account_id > $1 AND account_id <= $2 AND created_at < $3
           GROUP BY account_id ORDER BY account_id"#,
        after,
        upto,
        until.as_micros()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// What the entries of all other accounts sum to: a row for each account that ever moved.
pub async fn journal_other_sums(conn: &mut Conn, until: Timestamp) -> Result<Vec<AccountSumRow>> {
    let raws = query_as!(
        AccountSumRaw,
        r#"SELECT account_id, CAST(SUM(amount_micros) AS BIGINT) AS "sum_micros!: i64" FROM entries
           WHERE seq IS NULL AND created_at < $1 GROUP BY account_id ORDER BY account_id"#,
        until.as_micros()
    );
    take_all(raws.fetch_all(conn).await?)
}
