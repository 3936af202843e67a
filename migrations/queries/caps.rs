//! Spend caps, and what they look at.

use sqlx::{query, query_as};
use tarn_protocol::ids::SpendCapId;
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::caps::{SegmentOwnerRaw, SegmentOwnerRow, SpendCapRaw, SpendCapRow};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_cap {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            SpendCapRaw,
            "SELECT id, tenant_id, period, subject_kind, subject, limit_micros, created_at, updated_at
             FROM spend_caps " + $tail
            $(, $arg)*
        )
    };
}

/// Sets the limit of one subject and period; the cap as it is then.
pub async fn put_spend_cap(conn: &mut Conn, scope: &TenantScope, cap: &SpendCapRow) -> Result<SpendCapRow> {
    let row = put(cap)?;
    query!(
        "INSERT INTO spend_caps (id, tenant_id, period, subject_kind, subject, limit_micros, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
         ON CONFLICT (tenant_id, period, subject_kind, subject) DO UPDATE SET limit_micros = excluded.limit_micros,
             updated_at = excluded.updated_at",
        row.id,
        scope.as_str(),
        row.period,
        row.subject_kind,
        row.subject,
        row.limit_micros,
        row.created_at,
        row.updated_at
    )
    .execute(&mut *conn)
    .await?;
    let raw = select_cap!(
        "WHERE tenant_id = $1 AND period = $2 AND subject_kind = $3 AND subject = $4",
        scope.as_str(),
        row.period,
        row.subject_kind,
        row.subject
    );
    take(raw.fetch_one(conn).await?)
}

/// Oldest first.
pub async fn spend_caps(conn: &mut Conn, scope: &TenantScope) -> Result<Vec<SpendCapRow>> {
    take_all(select_cap!("WHERE tenant_id = $1 ORDER BY id", scope.as_str()).fetch_all(conn).await?)
}

pub async fn delete_spend_cap(conn: &mut Conn, scope: &TenantScope, id: &SpendCapId) -> Result<bool> {
    let done = query!("DELETE FROM spend_caps WHERE tenant_id = $1 AND id = $2", scope.as_str(), id.as_str());
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Whose instances the segments bill that are open or ended after `since`.
pub async fn segment_owners(
    conn: &mut Conn,
    scope: &TenantScope,
    since: Timestamp,
) -> Result<Vec<SegmentOwnerRow>> {
    let raws = query_as!(
        SegmentOwnerRaw,
        "SELECT s.id AS segment_id, i.created_by, i.label
         FROM usage_segments s JOIN instances i ON i.id = s.instance_id
         WHERE s.tenant_id = $1 AND (s.ended_at IS NULL OR s.ended_at > $2) ORDER BY s.id",
        scope.as_str(),
        since.as_micros()
    );
    take_all(raws.fetch_all(conn).await?)
}
