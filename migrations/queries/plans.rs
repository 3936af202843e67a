//! The planner's memory, evictions, orphans and placement turns; for use cases and workers only.

use sqlx::{query, query_as};
use tarn_protocol::ids::{HostId, InstanceId};
use tarn_protocol::units::Timestamp;
use tarn_rows::plans::{EvictionRaw, EvictionRow, InstancePlanRaw, InstancePlanRow, OrphanRaw, OrphanRow};

use super::{Conn, Result, put, take, take_all};

pub async fn instance_plan(conn: &mut Conn, id: &InstanceId) -> Result<Option<InstancePlanRow>> {
    let raw = query_as!(
        InstancePlanRaw,
        "SELECT instance_id, published_generation, published_goal, published_revision, failed_sets, progress_at
         FROM instance_plans WHERE instance_id = $1",
        id.as_str()
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// The memory of every instance that is on a host.
pub async fn instance_plans_of_host(conn: &mut Conn, host: &HostId) -> Result<Vec<InstancePlanRow>> {
    let raws = query_as!(
        InstancePlanRaw,
        "SELECT p.instance_id, p.published_generation, p.published_goal, p.published_revision, p.failed_sets,
             p.progress_at
         FROM instance_plans p JOIN instances i ON i.id = p.instance_id
         WHERE i.host_id = $1 AND i.terminated_at IS NULL ORDER BY p.instance_id",
        host.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Written only together with its instance, whose row version guards both.
pub async fn upsert_instance_plan(conn: &mut Conn, plan: &InstancePlanRow) -> Result<()> {
    let row = put(plan)?;
    query!(
        "INSERT INTO instance_plans (instance_id, published_generation, published_goal, published_revision, failed_sets,
             progress_at)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (instance_id) DO UPDATE SET published_generation = excluded.published_generation,
             published_goal = excluded.published_goal, published_revision = excluded.published_revision,
             failed_sets = excluded.failed_sets, progress_at = excluded.progress_at",
        row.instance_id,
        row.published_generation,
        row.published_goal,
        row.published_revision,
        row.failed_sets,
        row.progress_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn evictions(conn: &mut Conn, host: &HostId) -> Result<Vec<EvictionRow>> {
    let raws = query_as!(
        EvictionRaw,
        "SELECT host_id, instance_id, generation, created_at FROM evictions WHERE host_id = $1 ORDER BY instance_id",
        host.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// `false`: ordered before, at this generation or a higher one.
pub async fn order_eviction(conn: &mut Conn, eviction: &EvictionRow) -> Result<bool> {
    let row = put(eviction)?;
    let done = query!(
        "INSERT INTO evictions (host_id, instance_id, generation, created_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (host_id, instance_id) DO UPDATE SET generation = excluded.generation
         WHERE evictions.generation < excluded.generation",
        row.host_id,
        row.instance_id,
        row.generation,
        row.created_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// The copy is gone.
pub async fn finish_eviction(conn: &mut Conn, host: &HostId, instance: &InstanceId) -> Result<bool> {
    let done = query!(
        "DELETE FROM evictions WHERE host_id = $1 AND instance_id = $2",
        host.as_str(),
        instance.as_str()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

pub async fn orphan(conn: &mut Conn, host: &HostId, instance: &InstanceId) -> Result<Option<OrphanRow>> {
    let raw = query_as!(
        OrphanRaw,
        "SELECT host_id, instance_id, generation, first_seen_at, removal_ordered_at FROM orphans
         WHERE host_id = $1 AND instance_id = $2",
        host.as_str(),
        instance.as_str()
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

pub async fn orphans_of_host(conn: &mut Conn, host: &HostId) -> Result<Vec<OrphanRow>> {
    let raws = query_as!(
        OrphanRaw,
        "SELECT host_id, instance_id, generation, first_seen_at, removal_ordered_at FROM orphans
         WHERE host_id = $1 ORDER BY instance_id",
        host.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Kept since before that instant, on hosts that speak for themselves.
pub async fn orphans_kept_since(conn: &mut Conn, before: Timestamp, limit: u32) -> Result<Vec<OrphanRow>> {
    let raws = query_as!(
        OrphanRaw,
        "SELECT o.host_id, o.instance_id, o.generation, o.first_seen_at, o.removal_ordered_at
         FROM orphans o JOIN hosts h ON h.id = o.host_id
         WHERE o.removal_ordered_at IS NULL AND o.first_seen_at < $1
             AND h.unreachable_since IS NULL AND h.quarantine_reason IS NULL
         ORDER BY o.first_seen_at, o.instance_id LIMIT $2",
        before.as_micros(),
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// First sight and order of removal stay what they were.
pub async fn see_orphan(conn: &mut Conn, orphan: &OrphanRow) -> Result<()> {
    let row = put(orphan)?;
    query!(
        "INSERT INTO orphans (host_id, instance_id, generation, first_seen_at, removal_ordered_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (host_id, instance_id) DO UPDATE SET generation = excluded.generation
         WHERE orphans.generation < excluded.generation",
        row.host_id,
        row.instance_id,
        row.generation,
        row.first_seen_at,
        row.removal_ordered_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// `false`: it is not there, or its removal was ordered before.
pub async fn order_removal(
    conn: &mut Conn,
    host: &HostId,
    instance: &InstanceId,
    now: Timestamp,
) -> Result<bool> {
    let done = query!(
        "UPDATE orphans SET removal_ordered_at = $3
         WHERE host_id = $1 AND instance_id = $2 AND removal_ordered_at IS NULL",
        host.as_str(),
        instance.as_str(),
        now.as_micros()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// The host shows it no longer, or it is an instance after all.
pub async fn forget_orphan(conn: &mut Conn, host: &HostId, instance: &InstanceId) -> Result<bool> {
    let done = query!(
        "DELETE FROM orphans WHERE host_id = $1 AND instance_id = $2",
        host.as_str(),
        instance.as_str()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Waits for one's turn to place; it lasts until the transaction ends.
pub async fn take_placement_turn(conn: &mut Conn) -> Result<()> {
    query!("UPDATE placement_turns SET turns = turns + 1 WHERE id = 1").execute(conn).await?;
    Ok(())
}
