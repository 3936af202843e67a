//! A whole wallet in one statement: what every page of the console and every script asks for most.

use sqlx::query_as;
use tarn_rows::TenantScope;
use tarn_rows::wallet::{WalletLineRaw, WalletRow};

use super::{Conn, Result, take_all};

/// Balances, grants (oldest first), what burns and what is owed, as of one instant.
pub async fn wallet(conn: &mut Conn, scope: &TenantScope) -> Result<WalletRow> {
    let lines = query_as!(
        WalletLineRaw,
        r#"SELECT 'balance' AS "part!: String", b.account_id AS "id!: String", a.kind AS "kind!: String",
               b.posted_micros AS "first_micros!: i64", b.held_micros AS "second_micros!: i64",
               b.version AS "number!: i64", CAST(NULL AS BIGINT) AS "until_at?: i64",
               a.created_at AS "created_at!: i64"
           FROM accounts a JOIN wallet_balances b ON b.account_id = a.id WHERE a.tenant_id = $1
           UNION ALL
           SELECT 'grant', id, kind, granted_micros, remaining_micros, priority, expires_at, created_at
           FROM credit_grants WHERE tenant_id = $1
           UNION ALL
           SELECT 'burning', id, sku, micros_per_hour, 0, 0, exhausts_at, started_at
           FROM usage_segments WHERE tenant_id = $1 AND ended_at IS NULL
           UNION ALL
           SELECT 'burning', id, sku, micros_per_hour, 0, 0, exhausts_at, started_at
           FROM storage_segments WHERE tenant_id = $1 AND ended_at IS NULL
           UNION ALL
           SELECT 'debt', tenant_id, '', owed_micros, 0, 0, NULL, 0 FROM debts WHERE tenant_id = $1
           ORDER BY 1, 2"#,
        scope.as_str()
    );
    let lines = take_all(lines.fetch_all(conn).await?)?;
    WalletRow::from_lines(scope, lines).map_err(|bad| sqlx::Error::Decode(Box::new(bad)))
}
