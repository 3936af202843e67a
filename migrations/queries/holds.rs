//! Reservations of money in a wallet.

use sqlx::{query, query_as};
use tarn_protocol::ids::HoldId;
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::wallet::{HoldRaw, HoldRow, HoldState};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_hold {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            HoldRaw,
            "SELECT id, tenant_id, account_id, instance_id, amount_micros, state, created_at, expires_at, resolved_at
             FROM holds " + $tail
            $(, $arg)*
        )
    };
}

/// Checks and holds in one statement. `false`: the wallet does not cover it, or is not this tenant's; nothing changed.
pub async fn place_hold(conn: &mut Conn, scope: &TenantScope, hold: &HoldRow) -> Result<bool> {
    let row = put(hold)?;
    let done = query!(
        "UPDATE wallet_balances SET held_micros = held_micros + $3
         WHERE account_id = $2 AND posted_micros - held_micros >= $3
             AND account_id IN (SELECT id FROM accounts WHERE tenant_id = $1)",
        scope.as_str(),
        row.account_id,
        row.amount_micros
    );
    if done.execute(&mut *conn).await?.rows_affected() == 0 {
        return Ok(false);
    }
    query!(
        "INSERT INTO holds (id, tenant_id, account_id, instance_id, amount_micros, state, created_at, expires_at,
             resolved_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, NULL)",
        row.id,
        scope.as_str(),
        row.account_id,
        row.instance_id,
        row.amount_micros,
        HoldState::Pending.as_str(),
        row.created_at,
        row.expires_at
    )
    .execute(conn)
    .await?;
    Ok(true)
}

/// Resolves a pending hold, once, and frees what it held; what is to be charged is then posted in the same transaction. `None`: not
/// there, or resolved before.
pub async fn resolve_hold(
    conn: &mut Conn,
    scope: &TenantScope,
    id: &HoldId,
    state: HoldState,
    now: Timestamp,
) -> Result<Option<HoldRow>> {
    let done = query!(
        "UPDATE holds SET state = $3, resolved_at = $4
         WHERE tenant_id = $1 AND id = $2 AND state = 'pending' AND $3 <> 'pending'",
        scope.as_str(),
        id.as_str(),
        state.as_str(),
        now.as_micros()
    );
    if done.execute(&mut *conn).await?.rows_affected() == 0 {
        return Ok(None);
    }
    query!(
        "UPDATE wallet_balances SET held_micros = held_micros - (SELECT amount_micros FROM holds WHERE id = $1)
         WHERE account_id = (SELECT account_id FROM holds WHERE id = $1)",
        id.as_str()
    )
    .execute(&mut *conn)
    .await?;
    let raw = select_hold!("WHERE id = $1", id.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// Frees what a tenant's expired holds still hold: called before its money is planned with, since an expired hold holds nothing.
/// Returns how many there were.
pub async fn expire_holds(conn: &mut Conn, scope: &TenantScope, now: Timestamp) -> Result<u64> {
    let expired = query!(
        "SELECT id FROM holds WHERE tenant_id = $1 AND state = 'pending' AND expires_at <= $2 ORDER BY id",
        scope.as_str(),
        now.as_micros()
    );
    let mut count = 0;
    for row in expired.fetch_all(&mut *conn).await? {
        let resolved = resolve_hold(conn, scope, &take(row.id)?, HoldState::Expired, now).await?;
        count += u64::from(resolved.is_some());
    }
    Ok(count)
}

pub async fn holds_pending(conn: &mut Conn, scope: &TenantScope) -> Result<Vec<HoldRow>> {
    let raws = select_hold!("WHERE tenant_id = $1 AND state = 'pending' ORDER BY id", scope.as_str());
    take_all(raws.fetch_all(conn).await?)
}

/// For the expiry worker: of any tenant.
pub async fn holds_expired(conn: &mut Conn, now: Timestamp) -> Result<Vec<HoldRow>> {
    let raws = select_hold!("WHERE state = 'pending' AND expires_at <= $1 ORDER BY id", now.as_micros());
    take_all(raws.fetch_all(conn).await?)
}
