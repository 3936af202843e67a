//! What tenants were told, each thing once.

use sqlx::{query, query_as};
use tarn_protocol::ids::NoticeId;
use tarn_protocol::units::Timestamp;
use tarn_rows::notices::{
    NoticeKind, NoticeMarkRaw, NoticeMarkRow, NoticeRaw, NoticeRow, StoppedCostRaw, StoppedCostRow,
};
use tarn_rows::{Page, TenantScope};

use super::{Conn, Result, put, take, take_all};

/// `false`: it was told before.
pub async fn insert_notice(conn: &mut Conn, scope: &TenantScope, notice: &NoticeRow) -> Result<bool> {
    let row = put(notice)?;
    let done = query!(
        "INSERT INTO notices (id, tenant_id, kind, crossing, detail, created_at) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (tenant_id, crossing) DO NOTHING",
        row.id,
        scope.as_str(),
        row.kind,
        row.crossing,
        row.detail,
        row.created_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Newest first.
pub async fn notices(
    conn: &mut Conn,
    scope: &TenantScope,
    page: Page<'_, NoticeId>,
) -> Result<Vec<NoticeRow>> {
    let raws = query_as!(
        NoticeRaw,
        "SELECT id, tenant_id, kind, crossing, detail, created_at FROM notices
         WHERE tenant_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3",
        scope.as_str(),
        page.below(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

pub async fn notice(conn: &mut Conn, scope: &TenantScope, id: &NoticeId) -> Result<Option<NoticeRow>> {
    let raw = query_as!(
        NoticeRaw,
        "SELECT id, tenant_id, kind, crossing, detail, created_at FROM notices WHERE tenant_id = $1 AND id = $2",
        scope.as_str(),
        id.as_str()
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

pub async fn notice_marks(conn: &mut Conn, scope: &TenantScope) -> Result<Vec<NoticeMarkRow>> {
    let raws = query_as!(
        NoticeMarkRaw,
        "SELECT tenant_id, kind, fired_at FROM notice_marks WHERE tenant_id = $1 ORDER BY kind",
        scope.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// `false`: it is marked.
pub async fn insert_notice_mark(conn: &mut Conn, scope: &TenantScope, mark: &NoticeMarkRow) -> Result<bool> {
    let row = put(mark)?;
    let done = query!(
        "INSERT INTO notice_marks (tenant_id, kind, fired_at) VALUES ($1, $2, $3)
         ON CONFLICT (tenant_id, kind) DO NOTHING",
        scope.as_str(),
        row.kind,
        row.fired_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

pub async fn clear_notice_mark(conn: &mut Conn, scope: &TenantScope, kind: NoticeKind) -> Result<bool> {
    let done =
        query!("DELETE FROM notice_marks WHERE tenant_id = $1 AND kind = $2", scope.as_str(), kind.as_str());
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// For the worker: what has not run since before `since` and still costs, of tenants that were not told of `crossing` yet, those of one
/// tenant together.
pub async fn stopped_still_costing(
    conn: &mut Conn,
    crossing: &str,
    since: Timestamp,
) -> Result<Vec<StoppedCostRow>> {
    let raws = query_as!(
        StoppedCostRaw,
        r#"SELECT s.tenant_id AS "tenant_id!: String", s.instance_id AS "instance_id!: String", i.label AS "label!: String",
               CAST(SUM(s.micros_per_hour) AS BIGINT) AS "micros_per_hour!: i64"
           FROM storage_segments s JOIN instances i ON i.id = s.instance_id
           WHERE s.ended_at IS NULL AND s.micros_per_hour > 0 AND i.state IN ('stopped', 'failed') AND i.state_since < $2
               AND NOT EXISTS (SELECT 1 FROM notices n WHERE n.tenant_id = s.tenant_id AND n.crossing = $1)
           GROUP BY s.tenant_id, s.instance_id, i.label ORDER BY 1, 2"#,
        crossing,
        since.as_micros()
    );
    take_all(raws.fetch_all(conn).await?)
}
