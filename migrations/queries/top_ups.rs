//! Cash on its way in. A top-up leaves `pending` once, whoever says so and however often.

use sqlx::{query, query_as};
use tarn_billing::money::Micros;
use tarn_protocol::ids::{TenantId, TopUpId};
use tarn_protocol::units::Timestamp;
use tarn_rows::payments::{
    AutoTopUpRaw, AutoTopUpRow, PaymentMethodRaw, PaymentMethodRow, TopUpRaw, TopUpRow,
};
use tarn_rows::{Page, TenantScope};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_top_up {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            TopUpRaw,
            "SELECT id, tenant_id, reference, provider, external_id, payment_ref, amount_micros, cause, save_method,
                 state, failure, pay_url, transfer_id, grant_id, created_by, created_at, asks, ask_at, resolved_at
             FROM top_ups " + $tail
            $(, $arg)*
        )
    };
}

macro_rules! select_auto {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            AutoTopUpRaw,
            "SELECT tenant_id, threshold_micros, amount_micros, per_day_max, declines, stopped_reason, created_at,
                 updated_at
             FROM auto_top_ups " + $tail
            $(, $arg)*
        )
    };
}

/// `false`: it was asked for before (or, of the automatic kind, another is pending).
pub async fn insert_top_up(conn: &mut Conn, scope: &TenantScope, top_up: &TopUpRow) -> Result<bool> {
    let row = put(top_up)?;
    let done = query!(
        "INSERT INTO top_ups (id, tenant_id, reference, provider, external_id, payment_ref, amount_micros, cause,
             save_method, state, failure, pay_url, transfer_id, grant_id, created_by, created_at, asks, ask_at,
             resolved_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, NULL, NULL, $13, $14, $15, $16, NULL)
         ON CONFLICT DO NOTHING",
        row.id,
        scope.as_str(),
        row.reference,
        row.provider,
        row.external_id,
        row.payment_ref,
        row.amount_micros,
        row.cause,
        row.save_method,
        row.state,
        row.failure,
        row.pay_url,
        row.created_by,
        row.created_at,
        row.asks,
        row.ask_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Writes what may change of a top-up, if it is still pending. `false`: it was resolved meanwhile; nothing changed.
pub async fn update_top_up(conn: &mut Conn, scope: &TenantScope, top_up: &TopUpRow) -> Result<bool> {
    let row = put(top_up)?;
    let done = query!(
        "UPDATE top_ups SET external_id = $3, payment_ref = $4, state = $5, failure = $6, pay_url = $7,
             transfer_id = $8, grant_id = $9, asks = $10, ask_at = $11, resolved_at = $12
         WHERE tenant_id = $1 AND id = $2 AND state = 'pending' AND (external_id = $3 OR external_id IS NULL)",
        scope.as_str(),
        row.id,
        row.external_id,
        row.payment_ref,
        row.state,
        row.failure,
        row.pay_url,
        row.transfer_id,
        row.grant_id,
        row.asks,
        row.ask_at,
        row.resolved_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Newest first.
pub async fn top_ups(conn: &mut Conn, scope: &TenantScope, page: Page<'_, TopUpId>) -> Result<Vec<TopUpRow>> {
    let raws = select_top_up!(
        "WHERE tenant_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3",
        scope.as_str(),
        page.below(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

pub async fn top_up(conn: &mut Conn, scope: &TenantScope, id: &TopUpId) -> Result<Option<TopUpRow>> {
    let raw = select_top_up!("WHERE tenant_id = $1 AND id = $2", scope.as_str(), id.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

pub async fn top_up_by_reference(
    conn: &mut Conn,
    scope: &TenantScope,
    reference: &str,
) -> Result<Option<TopUpRow>> {
    let raw = select_top_up!("WHERE tenant_id = $1 AND reference = $2", scope.as_str(), reference);
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// For callbacks, which prove themselves by the provider's signature: of any tenant.
pub async fn top_up_by_external(
    conn: &mut Conn,
    provider: &str,
    external_id: &str,
) -> Result<Option<TopUpRow>> {
    let raw = select_top_up!("WHERE provider = $1 AND external_id = $2", provider, external_id);
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// For callbacks and workers: of any tenant.
pub async fn top_up_of_any_tenant(conn: &mut Conn, id: &TopUpId) -> Result<Option<TopUpRow>> {
    select_top_up!("WHERE id = $1", id.as_str()).fetch_optional(conn).await?.map(take).transpose()
}

/// For the worker that asks the provider: of any tenant, the longest due first.
pub async fn top_ups_due(conn: &mut Conn, now: Timestamp, limit: u32) -> Result<Vec<TopUpRow>> {
    let raws = select_top_up!(
        "WHERE state = 'pending' AND ask_at <= $1 ORDER BY ask_at, id LIMIT $2",
        now.as_micros(),
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// How many automatic top-ups a tenant had since.
pub async fn auto_top_ups_since(conn: &mut Conn, scope: &TenantScope, since: Timestamp) -> Result<u64> {
    let count = query!(
        r#"SELECT COUNT(*) AS "n!: i64" FROM top_ups WHERE tenant_id = $1 AND cause = 'auto' AND created_at >= $2"#,
        scope.as_str(),
        since.as_micros()
    );
    take(count.fetch_one(conn).await?.n)
}

pub async fn payment_method(conn: &mut Conn, scope: &TenantScope) -> Result<Option<PaymentMethodRow>> {
    let raw = query_as!(
        PaymentMethodRaw,
        "SELECT tenant_id, provider, customer_ref, method_ref, label, created_at
         FROM payment_methods WHERE tenant_id = $1",
        scope.as_str()
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

pub async fn put_payment_method(
    conn: &mut Conn,
    scope: &TenantScope,
    method: &PaymentMethodRow,
) -> Result<()> {
    let row = put(method)?;
    query!(
        "INSERT INTO payment_methods (tenant_id, provider, customer_ref, method_ref, label, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (tenant_id) DO UPDATE SET provider = excluded.provider, customer_ref = excluded.customer_ref,
             method_ref = excluded.method_ref, label = excluded.label, created_at = excluded.created_at",
        scope.as_str(),
        row.provider,
        row.customer_ref,
        row.method_ref,
        row.label,
        row.created_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn forget_payment_method(conn: &mut Conn, scope: &TenantScope) -> Result<bool> {
    let done = query!("DELETE FROM payment_methods WHERE tenant_id = $1", scope.as_str());
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

pub async fn auto_top_up(conn: &mut Conn, scope: &TenantScope) -> Result<Option<AutoTopUpRow>> {
    let raw = select_auto!("WHERE tenant_id = $1", scope.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// Sets a rule, active and without declines.
pub async fn put_auto_top_up(conn: &mut Conn, scope: &TenantScope, rule: &AutoTopUpRow) -> Result<()> {
    let row = put(rule)?;
    query!(
        "INSERT INTO auto_top_ups (tenant_id, threshold_micros, amount_micros, per_day_max, declines, stopped_reason,
             created_at, updated_at)
         VALUES ($1, $2, $3, $4, 0, NULL, $5, $6)
         ON CONFLICT (tenant_id) DO UPDATE SET threshold_micros = excluded.threshold_micros,
             amount_micros = excluded.amount_micros, per_day_max = excluded.per_day_max, declines = 0,
             stopped_reason = NULL, updated_at = excluded.updated_at",
        scope.as_str(),
        row.threshold_micros,
        row.amount_micros,
        row.per_day_max,
        row.created_at,
        row.updated_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// What became of an automatic payment: declines in a row, and why the rule rests, if it does.
pub async fn set_auto_top_up_declines(
    conn: &mut Conn,
    scope: &TenantScope,
    declines: u32,
    stopped_reason: Option<&str>,
    now: Timestamp,
) -> Result<bool> {
    let done = query!(
        "UPDATE auto_top_ups SET declines = $2, stopped_reason = $3, updated_at = $4 WHERE tenant_id = $1",
        scope.as_str(),
        i64::from(declines),
        stopped_reason,
        now.as_micros()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

pub async fn delete_auto_top_up(conn: &mut Conn, scope: &TenantScope) -> Result<bool> {
    let done = query!("DELETE FROM auto_top_ups WHERE tenant_id = $1", scope.as_str());
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// For the worker: tenants with an active rule, a method, nothing pending, and less in their wallets than they want to have.
pub async fn auto_top_ups_wanted(conn: &mut Conn) -> Result<Vec<TenantId>> {
    let rows = query!(
        r#"SELECT r.tenant_id AS "tenant_id!: String" FROM auto_top_ups r
           JOIN payment_methods m ON m.tenant_id = r.tenant_id
           WHERE r.stopped_reason IS NULL
               AND (SELECT COALESCE(SUM(b.posted_micros - b.held_micros), 0) FROM wallet_balances b
                    JOIN accounts a ON a.id = b.account_id WHERE a.tenant_id = r.tenant_id) < r.threshold_micros
               AND NOT EXISTS (SELECT 1 FROM top_ups t
                    WHERE t.tenant_id = r.tenant_id AND t.state = 'pending' AND t.cause = 'auto')
           ORDER BY 1"#
    );
    rows.fetch_all(conn).await?.into_iter().map(|row| take(row.tenant_id)).collect()
}

/// Cash and credit less what is held: what an automatic top-up looks at.
pub async fn wallet_available(conn: &mut Conn, scope: &TenantScope) -> Result<Micros> {
    let sum = query!(
        r#"SELECT CAST(COALESCE(SUM(b.posted_micros - b.held_micros), 0) AS BIGINT) AS "sum!: i64"
           FROM wallet_balances b JOIN accounts a ON a.id = b.account_id WHERE a.tenant_id = $1"#,
        scope.as_str()
    );
    Ok(Micros::new(sum.fetch_one(conn).await?.sum))
}
