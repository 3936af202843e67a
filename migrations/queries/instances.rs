//! Instances.

use sqlx::{query, query_as};
use tarn_protocol::ids::{HostId, InstanceId, OfferId};
use tarn_protocol::units::Timestamp;
use tarn_provisioner::lifecycle::State;
use tarn_rows::instances::{InstanceFilter, InstanceRaw, InstanceRow, ObservationRow};
use tarn_rows::{Page, TenantScope};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_instance {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            InstanceRaw,
            "SELECT id, tenant_id, created_by, label, tags, offer_id, spec, desired_state, desired_reason,
                 desired_since, state, state_since, phase, reason_code, reason_detail, generation, row_version,
                 placement_attempts, host_id, pool_bytes, residency, observed_phase, observed_at, log_tail, ttl_at,
                 created_at, terminated_at
             FROM instances " + $tail
            $(, $arg)*
        )
    };
}

pub async fn insert_instance(conn: &mut Conn, scope: &TenantScope, instance: &InstanceRow) -> Result<()> {
    let row = put(instance)?;
    query!(
        "INSERT INTO instances (id, tenant_id, created_by, label, tags, offer_id, spec, desired_state,
             desired_reason, desired_since, state, state_since, phase, reason_code, reason_detail, generation,
             row_version, placement_attempts, host_id, pool_bytes, residency, observed_phase, observed_at, log_tail,
             ttl_at, created_at, terminated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
             $22, $23, $24, $25, $26, $27)",
        row.id,
        scope.as_str(),
        row.created_by,
        row.label,
        row.tags,
        row.offer_id,
        row.spec,
        row.desired_state,
        row.desired_reason,
        row.desired_since,
        row.state,
        row.state_since,
        row.phase,
        row.reason_code,
        row.reason_detail,
        row.generation,
        row.row_version,
        row.placement_attempts,
        row.host_id,
        row.pool_bytes,
        row.residency,
        row.observed_phase,
        row.observed_at,
        row.log_tail,
        row.ttl_at,
        row.created_at,
        row.terminated_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Writes what people and workers change, if the row is still the one that was read (`row_version`), and bumps the version. What
/// hosts observe is left alone. `false`: stale or not there; read again and decide again.
pub async fn update_instance(conn: &mut Conn, scope: &TenantScope, instance: &InstanceRow) -> Result<bool> {
    let row = put(instance)?;
    let done = query!(
        "UPDATE instances SET label = $4, tags = $5, spec = $6, desired_state = $7, desired_reason = $8,
             desired_since = $9, state = $10, state_since = $11, phase = $12, reason_code = $13, reason_detail = $14,
             generation = $15, placement_attempts = $16, host_id = $17, ttl_at = $18, terminated_at = $19,
             row_version = row_version + 1
         WHERE tenant_id = $1 AND id = $2 AND row_version = $3",
        scope.as_str(),
        row.id,
        row.row_version,
        row.label,
        row.tags,
        row.spec,
        row.desired_state,
        row.desired_reason,
        row.desired_since,
        row.state,
        row.state_since,
        row.phase,
        row.reason_code,
        row.reason_detail,
        row.generation,
        row.placement_attempts,
        row.host_id,
        row.ttl_at,
        row.terminated_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

pub async fn instance(conn: &mut Conn, scope: &TenantScope, id: &InstanceId) -> Result<Option<InstanceRow>> {
    let raw = select_instance!("WHERE tenant_id = $1 AND id = $2", scope.as_str(), id.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// Oldest first.
pub async fn instances(
    conn: &mut Conn,
    scope: &TenantScope,
    filter: &InstanceFilter,
    page: Page<'_, InstanceId>,
) -> Result<Vec<InstanceRow>> {
    let raws = select_instance!(
        "WHERE tenant_id = $1 AND id > $2 AND (state = $3 OR $3 IS NULL) AND (offer_id = $4 OR $4 IS NULL)
             AND ($5 OR terminated_at IS NULL)
         ORDER BY id LIMIT $6",
        scope.as_str(),
        page.above(),
        filter.state.map(State::as_str),
        filter.offer_id.as_ref().map(OfferId::as_str),
        filter.terminated,
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// For workers and agents' calls: of any tenant.
pub async fn instance_of_any_tenant(conn: &mut Conn, id: &InstanceId) -> Result<Option<InstanceRow>> {
    select_instance!("WHERE id = $1", id.as_str()).fetch_optional(conn).await?.map(take).transpose()
}

/// For agents' calls: what is on a host or should be, of any tenant.
pub async fn instances_on_host(conn: &mut Conn, host: &HostId) -> Result<Vec<InstanceRow>> {
    let raws = select_instance!("WHERE host_id = $1 AND terminated_at IS NULL ORDER BY id", host.as_str());
    take_all(raws.fetch_all(conn).await?)
}

/// For the reconcile worker and operators: not terminated, of any tenant, oldest first.
pub async fn instances_live(conn: &mut Conn, page: Page<'_, InstanceId>) -> Result<Vec<InstanceRow>> {
    let raws = select_instance!(
        "WHERE terminated_at IS NULL AND id > $1 ORDER BY id LIMIT $2",
        page.above(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// For workers: whose time to live has passed.
pub async fn instances_past_ttl(conn: &mut Conn, now: Timestamp) -> Result<Vec<InstanceRow>> {
    let raws = select_instance!(
        "WHERE terminated_at IS NULL AND ttl_at <= $1 AND desired_state <> 'terminated' ORDER BY ttl_at, id",
        now.as_micros()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Stores what `host` observed, if it speaks of the generation that is current and placed there. `false`: of an older claim.
pub async fn observe_instance(conn: &mut Conn, host: &HostId, observation: &ObservationRow) -> Result<bool> {
    let row = put(observation)?;
    let done = query!(
        "UPDATE instances SET pool_bytes = COALESCE($4, pool_bytes), residency = $5, observed_phase = $6,
             observed_at = $7, log_tail = COALESCE($8, log_tail)
         WHERE id = $1 AND host_id = $2 AND generation = $3",
        row.instance_id,
        host.as_str(),
        row.generation,
        row.pool_bytes,
        row.residency,
        row.observed_phase,
        row.observed_at,
        row.log_tail
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Forgets what was observed: a new generation starts unseen.
pub async fn forget_observation(conn: &mut Conn, scope: &TenantScope, id: &InstanceId) -> Result<bool> {
    let done = query!(
        "UPDATE instances SET pool_bytes = NULL, residency = NULL, observed_phase = NULL, observed_at = NULL
         WHERE tenant_id = $1 AND id = $2",
        scope.as_str(),
        id.as_str()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// For the reconcile worker: on their way to somewhere, the longest waiting first, of any tenant.
pub async fn instances_in_motion(conn: &mut Conn, limit: u32) -> Result<Vec<InstanceId>> {
    let rows = query!(
        "SELECT id FROM instances
         WHERE terminated_at IS NULL AND state IN ('requested', 'scheduling', 'provisioning', 'starting', 'stopping',
             'suspending', 'terminating')
         ORDER BY state_since, id LIMIT $1",
        i64::from(limit)
    );
    rows.fetch_all(conn).await?.into_iter().map(|row| take(row.id)).collect()
}
