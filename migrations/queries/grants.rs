//! Buckets of credit. What is left of one changes only by compare-and-set against what was read.

use sqlx::{query, query_as};
use tarn_billing::money::Micros;
use tarn_protocol::ids::GrantId;
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::wallet::{GrantRaw, GrantRow};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_grant {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            GrantRaw,
            "SELECT id, tenant_id, kind, priority, granted_micros, remaining_micros, expires_at, created_at
             FROM credit_grants " + $tail
            $(, $arg)*
        )
    };
}

/// `false`: this grant was given already.
pub async fn insert_grant(conn: &mut Conn, scope: &TenantScope, grant: &GrantRow) -> Result<bool> {
    let row = put(grant)?;
    let done = query!(
        "INSERT INTO credit_grants (id, tenant_id, kind, priority, granted_micros, remaining_micros, expires_at,
             created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING",
        row.id,
        scope.as_str(),
        row.kind,
        row.priority,
        row.granted_micros,
        row.remaining_micros,
        row.expires_at,
        row.created_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

pub async fn grant(conn: &mut Conn, scope: &TenantScope, id: &GrantId) -> Result<Option<GrantRow>> {
    let raw = select_grant!("WHERE tenant_id = $1 AND id = $2", scope.as_str(), id.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// What can be drawn now, in draw order.
pub async fn spendable_grants(conn: &mut Conn, scope: &TenantScope, now: Timestamp) -> Result<Vec<GrantRow>> {
    let raws = select_grant!(
        "WHERE tenant_id = $1 AND remaining_micros > 0 AND (expires_at IS NULL OR expires_at > $2)
         ORDER BY priority, expires_at NULLS LAST, id",
        scope.as_str(),
        now.as_micros()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// All of them, empty and expired too, oldest first.
pub async fn grants(conn: &mut Conn, scope: &TenantScope) -> Result<Vec<GrantRow>> {
    take_all(select_grant!("WHERE tenant_id = $1 ORDER BY id", scope.as_str()).fetch_all(conn).await?)
}

/// Those with something left, expired or not, oldest first: an old tenant has many that are empty.
pub async fn grants_left(conn: &mut Conn, scope: &TenantScope) -> Result<Vec<GrantRow>> {
    let raws = select_grant!("WHERE tenant_id = $1 AND remaining_micros > 0 ORDER BY id", scope.as_str());
    take_all(raws.fetch_all(conn).await?)
}

/// For the expiry worker: of any tenant, with something left.
pub async fn grants_expired(conn: &mut Conn, now: Timestamp) -> Result<Vec<GrantRow>> {
    let raws = select_grant!(
        "WHERE remaining_micros > 0 AND expires_at <= $1 ORDER BY expires_at, id",
        now.as_micros()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Sets what is left of a grant from `before` to `after`. `false`: it is not `before` any more; plan again.
pub async fn set_grant_remaining(
    conn: &mut Conn,
    scope: &TenantScope,
    id: &GrantId,
    before: Micros,
    after: Micros,
) -> Result<bool> {
    let done = query!(
        "UPDATE credit_grants SET remaining_micros = $4
         WHERE tenant_id = $1 AND id = $2 AND remaining_micros = $3",
        scope.as_str(),
        id.as_str(),
        before.get(),
        after.get()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}
