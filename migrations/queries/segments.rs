//! Billable intervals. Evidence, settlement, split and close all go through one guarded update, so none overtakes another.

use sqlx::{query, query_as};
use tarn_billing::money::Micros;
use tarn_protocol::ids::{GpuUuid, InstanceId, OfferId, SegmentId, TenantId};
use tarn_protocol::units::{Generation, Timestamp};
use tarn_rows::segments::{ChargeFilter, SegmentRaw, SegmentRow, WaivedRaw, WaivedRow};
use tarn_rows::{Page, TenantScope};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_segment {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            SegmentRaw,
            "SELECT id, tenant_id, instance_id, generation, sku, meter_gpu_uuid, price_version, micros_per_hour,
                 boot_id, anchor_mono_ms, started_at, ended_at, close_reason, covered, settled_seconds,
                 settled_micros, row_version, run_until_mono_ms, exhausts_at, updated_at
             FROM usage_segments " + $tail
            $(, $arg)*
        )
    };
}

/// A second open segment of the card or of the instance, or one that overlaps a closed one, breaks a constraint of that name.
pub async fn insert_segment(conn: &mut Conn, scope: &TenantScope, segment: &SegmentRow) -> Result<()> {
    let row = put(segment)?;
    query!(
        "INSERT INTO usage_segments (id, tenant_id, instance_id, generation, sku, meter_gpu_uuid, price_version,
             micros_per_hour, boot_id, anchor_mono_ms, started_at, ended_at, close_reason, covered, settled_seconds,
             settled_micros, row_version, run_until_mono_ms, exhausts_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20)",
        row.id,
        scope.as_str(),
        row.instance_id,
        row.generation,
        row.sku,
        row.meter_gpu_uuid,
        row.price_version,
        row.micros_per_hour,
        row.boot_id,
        row.anchor_mono_ms,
        row.started_at,
        row.ended_at,
        row.close_reason,
        row.covered,
        row.settled_seconds,
        row.settled_micros,
        row.row_version,
        row.run_until_mono_ms,
        row.exhausts_at,
        row.updated_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Writes what may change of a segment (its end, its evidence, what is settled, until when it is paid), if the row is still the one
/// that was read, and bumps the version. `false`: stale; read again and plan again.
pub async fn update_segment(conn: &mut Conn, scope: &TenantScope, segment: &SegmentRow) -> Result<bool> {
    let row = put(segment)?;
    let done = query!(
        "UPDATE usage_segments SET ended_at = $4, close_reason = $5, covered = $6, settled_seconds = $7,
             settled_micros = $8, run_until_mono_ms = $9, exhausts_at = $10, updated_at = $11,
             row_version = row_version + 1
         WHERE tenant_id = $1 AND id = $2 AND row_version = $3",
        scope.as_str(),
        row.id,
        row.row_version,
        row.ended_at,
        row.close_reason,
        row.covered,
        row.settled_seconds,
        row.settled_micros,
        row.run_until_mono_ms,
        row.exhausts_at,
        row.updated_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

pub async fn segment(conn: &mut Conn, scope: &TenantScope, id: &SegmentId) -> Result<Option<SegmentRow>> {
    let raw = select_segment!("WHERE tenant_id = $1 AND id = $2", scope.as_str(), id.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// Newest first.
pub async fn segments(
    conn: &mut Conn,
    scope: &TenantScope,
    page: Page<'_, SegmentId>,
) -> Result<Vec<SegmentRow>> {
    let raws = select_segment!(
        "WHERE tenant_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3",
        scope.as_str(),
        page.below(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// What a bill shows, newest first.
pub async fn charged_segments(
    conn: &mut Conn,
    scope: &TenantScope,
    filter: &ChargeFilter,
    page: Page<'_, SegmentId>,
) -> Result<Vec<SegmentRow>> {
    let raws = select_segment!(
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
pub async fn uninvoiced_segments(
    conn: &mut Conn,
    scope: &TenantScope,
    before: Timestamp,
    page: Page<'_, SegmentId>,
) -> Result<Vec<SegmentRow>> {
    let raws = select_segment!(
        "WHERE tenant_id = $1 AND id > $2 AND started_at < $3
             AND settled_seconds > COALESCE(
                 (SELECT MAX(l.to_s) FROM invoice_lines l WHERE l.segment_id = usage_segments.id), 0)
         ORDER BY id LIMIT $4",
        scope.as_str(),
        page.above(),
        before.as_micros(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// What an instance was charged in all, for its cards and its disk.
pub async fn spent_on_instance(
    conn: &mut Conn,
    scope: &TenantScope,
    instance: &InstanceId,
) -> Result<Micros> {
    let sum = query!(
        r#"SELECT CAST((SELECT COALESCE(SUM(settled_micros), 0) FROM usage_segments
                WHERE tenant_id = $1 AND instance_id = $2)
             + (SELECT COALESCE(SUM(settled_micros), 0) FROM storage_segments
                WHERE tenant_id = $1 AND instance_id = $2) AS BIGINT) AS "sum!: i64""#,
        scope.as_str(),
        instance.as_str()
    );
    Ok(Micros::new(sum.fetch_one(conn).await?.sum))
}

/// Oldest first.
pub async fn segments_of_instance(
    conn: &mut Conn,
    scope: &TenantScope,
    instance: &InstanceId,
) -> Result<Vec<SegmentRow>> {
    let raws = select_segment!(
        "WHERE tenant_id = $1 AND instance_id = $2 ORDER BY started_at, id",
        scope.as_str(),
        instance.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}

pub async fn open_segment_of_instance(
    conn: &mut Conn,
    scope: &TenantScope,
    instance: &InstanceId,
) -> Result<Option<SegmentRow>> {
    let raw = select_segment!(
        "WHERE tenant_id = $1 AND instance_id = $2 AND ended_at IS NULL",
        scope.as_str(),
        instance.as_str()
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// What a tenant burns now.
pub async fn open_segments_of_tenant(conn: &mut Conn, scope: &TenantScope) -> Result<Vec<SegmentRow>> {
    let raws = select_segment!("WHERE tenant_id = $1 AND ended_at IS NULL ORDER BY id", scope.as_str());
    take_all(raws.fetch_all(conn).await?)
}

/// For agents' calls: the segments of one run of an instance (several after a price change), for evidence that may come late.
pub async fn segments_of_run(
    conn: &mut Conn,
    instance: &InstanceId,
    generation: Generation,
) -> Result<Vec<SegmentRow>> {
    let raws = select_segment!(
        "WHERE instance_id = $1 AND generation = $2 ORDER BY started_at, id",
        instance.as_str(),
        generation.get()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// For workers: of any tenant.
pub async fn open_segment_of_gpu(conn: &mut Conn, gpu: &GpuUuid) -> Result<Option<SegmentRow>> {
    let raw = select_segment!("WHERE meter_gpu_uuid = $1 AND ended_at IS NULL", gpu.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// For the settlement worker: of any tenant, in order of id.
pub async fn open_segments(conn: &mut Conn, page: Page<'_, SegmentId>) -> Result<Vec<SegmentRow>> {
    let raws = select_segment!(
        "WHERE ended_at IS NULL AND id > $1 ORDER BY id LIMIT $2",
        page.above(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// For operators: what runs at the price of an offer, of any tenant, in order of id.
pub async fn open_segments_of_sku(
    conn: &mut Conn,
    sku: &OfferId,
    page: Page<'_, SegmentId>,
) -> Result<Vec<SegmentRow>> {
    let raws = select_segment!(
        "WHERE sku = $1 AND ended_at IS NULL AND id > $2 ORDER BY id LIMIT $3",
        sku.as_str(),
        page.above(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// For the exhaustion worker: open, of any tenant, whose money ends by `now`; the longest overdue first.
pub async fn segments_exhausted(conn: &mut Conn, now: Timestamp, limit: u32) -> Result<Vec<SegmentRow>> {
    let raws = select_segment!(
        "WHERE ended_at IS NULL AND exhausts_at <= $1 ORDER BY exhausts_at, id LIMIT $2",
        now.as_micros(),
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// For the exhaustion worker: the next instant at which some segment's money ends, to sleep until.
pub async fn next_exhaustion(conn: &mut Conn) -> Result<Option<Timestamp>> {
    let next = query!(r#"SELECT MIN(exhausts_at) AS "at?: i64" FROM usage_segments WHERE ended_at IS NULL"#);
    Ok(next.fetch_one(conn).await?.at.map(Timestamp::from_micros))
}

/// What a tenant may still be charged for: open, or changed since (evidence that came late changes a segment that ended).
pub async fn segments_that_cost(
    conn: &mut Conn,
    scope: &TenantScope,
    since: Timestamp,
) -> Result<Vec<SegmentRow>> {
    let raws = select_segment!(
        "WHERE tenant_id = $1 AND (ended_at IS NULL OR updated_at > $2) ORDER BY started_at, id",
        scope.as_str(),
        since.as_micros()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// What a tenant was billed for in any part of the time since: open, or ended after it. Oldest first.
pub async fn segments_since(
    conn: &mut Conn,
    scope: &TenantScope,
    since: Timestamp,
) -> Result<Vec<SegmentRow>> {
    let raws = select_segment!(
        "WHERE tenant_id = $1 AND (ended_at IS NULL OR ended_at > $2) ORDER BY started_at, id",
        scope.as_str(),
        since.as_micros()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Seconds of a tenant's ended segments that nobody is charged for.
pub async fn waived_seconds(conn: &mut Conn, scope: &TenantScope) -> Result<Vec<WaivedRow>> {
    let raws = query_as!(
        WaivedRaw,
        "SELECT segment_id, seconds, owed_seconds FROM waived_seconds WHERE tenant_id = $1 ORDER BY segment_id",
        scope.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Sets what of an ended segment is waived and what was charged to the receivable.
pub async fn put_waived_seconds(
    conn: &mut Conn,
    scope: &TenantScope,
    waived: &WaivedRow,
    now: Timestamp,
) -> Result<()> {
    let row = put(waived)?;
    query!(
        "INSERT INTO waived_seconds (segment_id, tenant_id, seconds, owed_seconds, updated_at)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (segment_id) DO UPDATE SET seconds = excluded.seconds, owed_seconds = excluded.owed_seconds,
             updated_at = excluded.updated_at",
        row.segment_id,
        scope.as_str(),
        row.seconds,
        row.owed_seconds,
        now.as_micros()
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// For the settlement worker: whose segments are open or changed since.
pub async fn tenants_that_cost(conn: &mut Conn, since: Timestamp) -> Result<Vec<TenantId>> {
    let rows = query!(
        r#"SELECT DISTINCT tenant_id AS "tenant_id!: String" FROM usage_segments
           WHERE ended_at IS NULL OR updated_at > $1 ORDER BY 1"#,
        since.as_micros()
    );
    rows.fetch_all(conn).await?.into_iter().map(|row| take(row.tenant_id)).collect()
}
