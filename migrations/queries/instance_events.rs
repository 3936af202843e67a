//! The history of instances.

use sqlx::{query, query_as};
use tarn_protocol::ids::{EventId, InstanceId};
use tarn_rows::instances::{InstanceEventRaw, InstanceEventRow};
use tarn_rows::{Page, TenantScope};

use super::{Conn, Result, put, take_all};

pub async fn insert_instance_event(
    conn: &mut Conn,
    scope: &TenantScope,
    event: &InstanceEventRow,
) -> Result<()> {
    let row = put(event)?;
    query!(
        "INSERT INTO instance_events (id, instance_id, tenant_id, kind, detail, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
        row.id,
        row.instance_id,
        scope.as_str(),
        row.kind,
        row.detail,
        row.created_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Oldest first.
pub async fn instance_events(
    conn: &mut Conn,
    scope: &TenantScope,
    instance: &InstanceId,
    page: Page<'_, EventId>,
) -> Result<Vec<InstanceEventRow>> {
    let raws = query_as!(
        InstanceEventRaw,
        "SELECT id, instance_id, tenant_id, kind, detail, created_at FROM instance_events
         WHERE tenant_id = $1 AND instance_id = $2 AND id > $3 ORDER BY id LIMIT $4",
        scope.as_str(),
        instance.as_str(),
        page.above(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}
