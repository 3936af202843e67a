//! The planner's memory, evictions and placement turns; for use cases and workers only.

use sqlx::{query, query_as};
use tarn_protocol::ids::{HostId, InstanceId};
use tarn_rows::plans::{EvictionRaw, EvictionRow, InstancePlanRaw, InstancePlanRow};

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

/// Waits for one's turn to place; it lasts until the transaction ends.
pub async fn take_placement_turn(conn: &mut Conn) -> Result<()> {
    query!("UPDATE placement_turns SET turns = turns + 1 WHERE id = 1").execute(conn).await?;
    Ok(())
}
