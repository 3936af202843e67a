//! Segments of disks. Settlement, split and close all go through one guarded update, as those of cards do.

use sqlx::{query, query_as};
use tarn_protocol::ids::{InstanceId, OfferId, SegmentId, TenantId};
use tarn_protocol::units::Timestamp;
use tarn_rows::segments::ChargeFilter;
use tarn_rows::storage::{StorageSegmentRaw, StorageSegmentRow};
use tarn_rows::{Page, TenantScope};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_storage {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            StorageSegmentRaw,
            "SELECT id, tenant_id, instance_id, generation, sku, gib, price_version, micros_per_hour, started_at,
                 ended_at, close_reason, settled_seconds, settled_micros, row_version, exhausts_at, updated_at
             FROM storage_segments " + $tail
            $(, $arg)*
        )
    };
}

/// A second open segment of the disk and SKU, or one that overlaps a closed one, breaks a constraint of that name.
pub async fn insert_storage_segment(
    conn: &mut Conn,
    scope: &TenantScope,
    segment: &StorageSegmentRow,
) -> Result<()> {
    let row = put(segment)?;
    query!(
        "INSERT INTO storage_segments (id, tenant_id, instance_id, generation, sku, gib, price_version,
             micros_per_hour, started_at, ended_at, close_reason, settled_seconds, settled_micros, row_version,
             exhausts_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
        row.id,
        scope.as_str(),
        row.instance_id,
        row.generation,
        row.sku,
        row.gib,
        row.price_version,
        row.micros_per_hour,
        row.started_at,
        row.ended_at,
        row.close_reason,
        row.settled_seconds,
        row.settled_micros,
        row.row_version,
        row.exhausts_at,
        row.updated_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Writes what may change of a segment, if the row is still the one that was read, and bumps the version. `false`: stale.
pub async fn update_storage_segment(
    conn: &mut Conn,
    scope: &TenantScope,
    segment: &StorageSegmentRow,
) -> Result<bool> {
    let row = put(segment)?;
    let done = query!(
        "UPDATE storage_segments SET ended_at = $4, close_reason = $5, settled_seconds = $6, settled_micros = $7,
             exhausts_at = $8, updated_at = $9, row_version = row_version + 1
         WHERE tenant_id = $1 AND id = $2 AND row_version = $3",
        scope.as_str(),
        row.id,
        row.row_version,
        row.ended_at,
        row.close_reason,
        row.settled_seconds,
        row.settled_micros,
        row.exhausts_at,
        row.updated_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

pub async fn storage_segment(
    conn: &mut Conn,
    scope: &TenantScope,
    id: &SegmentId,
) -> Result<Option<StorageSegmentRow>> {
    let raw = select_storage!("WHERE tenant_id = $1 AND id = $2", scope.as_str(), id.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// The disk of an instance, as it is charged now: one for each SKU, or none.
pub async fn open_storage_segments_of_instance(
    conn: &mut Conn,
    scope: &TenantScope,
    instance: &InstanceId,
) -> Result<Vec<StorageSegmentRow>> {
    let raws = select_storage!(
        "WHERE tenant_id = $1 AND instance_id = $2 AND ended_at IS NULL ORDER BY sku",
        scope.as_str(),
        instance.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// The newest of an instance's disk, open or not: when and why it was last charged.
pub async fn newest_storage_segment_of_instance(
    conn: &mut Conn,
    scope: &TenantScope,
    instance: &InstanceId,
) -> Result<Option<StorageSegmentRow>> {
    let raw = select_storage!(
        "WHERE tenant_id = $1 AND instance_id = $2 ORDER BY started_at DESC, id DESC LIMIT 1",
        scope.as_str(),
        instance.as_str()
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// For operators: disks at the price of a SKU, of any tenant, in order of id.
pub async fn open_storage_of_sku(
    conn: &mut Conn,
    sku: &OfferId,
    page: Page<'_, SegmentId>,
) -> Result<Vec<StorageSegmentRow>> {
    let raws = select_storage!(
        "WHERE sku = $1 AND ended_at IS NULL AND id > $2 ORDER BY id LIMIT $3",
        sku.as_str(),
        page.above(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// What a bill shows, newest first.
pub async fn charged_storage(
    conn: &mut Conn,
    scope: &TenantScope,
    filter: &ChargeFilter,
    page: Page<'_, SegmentId>,
) -> Result<Vec<StorageSegmentRow>> {
    let raws = select_storage!(
        "WHERE tenant_id = $1 AND id < $2 AND (instance_id = $3 OR $3 IS NULL) AND started_at < $4
             AND (ended_at IS NULL OR ended_at > $5)
             AND instance_id IN (SELECT i.id FROM instances i WHERE i.tenant_id = $1 AND (i.label = $6 OR $6 IS NULL))
         ORDER BY id DESC LIMIT $7",
        scope.as_str(),
        page.below(),
        filter.instance_id.as_ref().map(InstanceId::as_str),
        filter.to.as_micros(),
        filter.from.as_micros(),
        filter.label.as_deref(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// For invoices: opened before `before`, with settled seconds that are on no invoice yet; in order of id.
pub async fn uninvoiced_storage(
    conn: &mut Conn,
    scope: &TenantScope,
    before: Timestamp,
    page: Page<'_, SegmentId>,
) -> Result<Vec<StorageSegmentRow>> {
    let raws = select_storage!(
        "WHERE tenant_id = $1 AND id > $2 AND started_at < $3
             AND settled_seconds > COALESCE(
                 (SELECT MAX(l.to_s) FROM invoice_lines l WHERE l.segment_id = storage_segments.id), 0)
         ORDER BY id LIMIT $4",
        scope.as_str(),
        page.above(),
        before.as_micros(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// What a tenant may still be charged for: open, or changed since.
pub async fn storage_that_costs(
    conn: &mut Conn,
    scope: &TenantScope,
    since: Timestamp,
) -> Result<Vec<StorageSegmentRow>> {
    let raws = select_storage!(
        "WHERE tenant_id = $1 AND (ended_at IS NULL OR updated_at > $2) ORDER BY started_at, id",
        scope.as_str(),
        since.as_micros()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// For the settlement worker: whose disks are charged, or changed since.
pub async fn tenants_with_disks_that_cost(conn: &mut Conn, since: Timestamp) -> Result<Vec<TenantId>> {
    let rows = query!(
        r#"SELECT DISTINCT tenant_id AS "tenant_id!: String" FROM storage_segments
           WHERE ended_at IS NULL OR updated_at > $1 ORDER BY 1"#,
        since.as_micros()
    );
    rows.fetch_all(conn).await?.into_iter().map(|row| take(row.tenant_id)).collect()
}

/// For the exhaustion worker: tenants with a charged disk whose money ends by `now`.
pub async fn tenants_with_exhausted_disks(
    conn: &mut Conn,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<TenantId>> {
    let rows = query!(
        r#"SELECT DISTINCT tenant_id AS "tenant_id!: String" FROM storage_segments
           WHERE ended_at IS NULL AND exhausts_at <= $1 ORDER BY 1 LIMIT $2"#,
        now.as_micros(),
        i64::from(limit)
    );
    rows.fetch_all(conn).await?.into_iter().map(|row| take(row.tenant_id)).collect()
}

/// Instances that live on while their disk is not charged because the money ended, and since when.
pub async fn unpaid_disks(conn: &mut Conn, scope: &TenantScope) -> Result<Vec<InstanceId>> {
    let rows = query!(
        r#"SELECT DISTINCT s.instance_id AS "instance_id!: String"
           FROM storage_segments s JOIN instances i ON i.id = s.instance_id
           WHERE s.tenant_id = $1 AND s.close_reason = 'balance_exhausted' AND i.desired_state <> 'terminated'
               AND NOT EXISTS (SELECT 1 FROM storage_segments o
                   WHERE o.instance_id = s.instance_id AND o.sku = s.sku AND o.started_at > s.started_at)
           ORDER BY 1"#,
        scope.as_str()
    );
    rows.fetch_all(conn).await?.into_iter().map(|row| take(row.instance_id)).collect()
}

/// For the sweep: instances that live on though nobody has paid for their disk since `before`.
pub async fn disks_unpaid_since(conn: &mut Conn, before: Timestamp, limit: u32) -> Result<Vec<InstanceId>> {
    let rows = query!(
        r#"SELECT DISTINCT s.instance_id AS "instance_id!: String"
           FROM storage_segments s JOIN instances i ON i.id = s.instance_id
           WHERE s.close_reason = 'balance_exhausted' AND s.ended_at <= $1 AND i.desired_state <> 'terminated'
               AND NOT EXISTS (SELECT 1 FROM storage_segments o
                   WHERE o.instance_id = s.instance_id AND o.sku = s.sku AND o.started_at > s.started_at)
           ORDER BY 1 LIMIT $2"#,
        before.as_micros(),
        i64::from(limit)
    );
    rows.fetch_all(conn).await?.into_iter().map(|row| take(row.instance_id)).collect()
}
