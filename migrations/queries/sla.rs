//! Broken promises: the facts they are found in, and what was credited for them.

use sqlx::{query, query_as};
use tarn_billing::money::Micros;
use tarn_protocol::ids::{HostId, IncidentId, InstanceId};
use tarn_protocol::units::{Generation, Timestamp};
use tarn_rows::instances::{InstanceEventRaw, InstanceEventRow};
use tarn_rows::segments::{SegmentRaw, SegmentRow};
use tarn_rows::sla::{IncidentRaw, IncidentRow, SilenceRaw, SilenceRow};
use tarn_rows::{Page, TenantScope};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_incident {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            IncidentRaw,
            "SELECT id, tenant_id, instance_id, host_id, kind, generation, from_at, to_at, micros_per_hour,
                 share_percent, amount_micros, grant_id, evidence, created_at
             FROM sla_incidents " + $tail
            $(, $arg)*
        )
    };
}

/// `false`: it is known.
pub async fn insert_incident(conn: &mut Conn, scope: &TenantScope, incident: &IncidentRow) -> Result<bool> {
    let row = put(incident)?;
    let done = query!(
        "INSERT INTO sla_incidents (id, tenant_id, instance_id, host_id, kind, generation, from_at, to_at,
             micros_per_hour, share_percent, amount_micros, grant_id, evidence, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
         ON CONFLICT (instance_id, kind, from_at) DO NOTHING",
        row.id,
        scope.as_str(),
        row.instance_id,
        row.host_id,
        row.kind,
        row.generation,
        row.from_at,
        row.to_at,
        row.micros_per_hour,
        row.share_percent,
        row.amount_micros,
        row.grant_id,
        row.evidence,
        row.created_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Newest first.
pub async fn incidents(
    conn: &mut Conn,
    scope: &TenantScope,
    page: Page<'_, IncidentId>,
) -> Result<Vec<IncidentRow>> {
    let raws = select_incident!(
        "WHERE tenant_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3",
        scope.as_str(),
        page.below(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

pub async fn incident(conn: &mut Conn, scope: &TenantScope, id: &IncidentId) -> Result<Option<IncidentRow>> {
    let raw = select_incident!("WHERE tenant_id = $1 AND id = $2", scope.as_str(), id.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// For the worker: whether this incident is known, of any tenant.
pub async fn incident_known(
    conn: &mut Conn,
    instance: &InstanceId,
    kind: &str,
    from: Timestamp,
) -> Result<bool> {
    let known = query!(
        r#"SELECT COUNT(*) AS "n!: i64" FROM sla_incidents WHERE instance_id = $1 AND kind = $2 AND from_at = $3"#,
        instance.as_str(),
        kind,
        from.as_micros()
    );
    Ok(known.fetch_one(conn).await?.n > 0)
}

/// What was credited for time of one run so far.
pub async fn credited_for_run(
    conn: &mut Conn,
    scope: &TenantScope,
    instance: &InstanceId,
    generation: Generation,
) -> Result<Micros> {
    let sum = query!(
        r#"SELECT CAST(COALESCE(SUM(amount_micros), 0) AS BIGINT) AS "sum!: i64" FROM sla_incidents
           WHERE tenant_id = $1 AND instance_id = $2 AND generation = $3 AND kind = 'unreachable'"#,
        scope.as_str(),
        instance.as_str(),
        generation.get()
    );
    Ok(Micros::new(sum.fetch_one(conn).await?.sum))
}

/// For the worker: lines of history of `kind` since, of any tenant, for which no incident of `incident_kind` is known.
pub async fn events_without_incident(
    conn: &mut Conn,
    kind: &str,
    incident_kind: &str,
    since: Timestamp,
    limit: u32,
) -> Result<Vec<InstanceEventRow>> {
    let raws = query_as!(
        InstanceEventRaw,
        "SELECT e.id, e.instance_id, e.tenant_id, e.kind, e.detail, e.created_at FROM instance_events e
         WHERE e.kind = $1 AND e.created_at > $3
             AND NOT EXISTS (SELECT 1 FROM sla_incidents s
                 WHERE s.instance_id = e.instance_id AND s.kind = $2 AND s.from_at = e.created_at)
         ORDER BY e.created_at, e.id LIMIT $4",
        kind,
        incident_kind,
        since.as_micros(),
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// For the worker: the change of state that followed.
pub async fn next_state_event(
    conn: &mut Conn,
    instance: &InstanceId,
    after: Timestamp,
) -> Result<Option<InstanceEventRow>> {
    let raw = query_as!(
        InstanceEventRaw,
        "SELECT id, instance_id, tenant_id, kind, detail, created_at FROM instance_events
         WHERE instance_id = $1 AND created_at > $2 AND kind LIKE 'instance.%' ORDER BY created_at, id LIMIT 1",
        instance.as_str(),
        after.as_micros()
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// For the worker: times of silence of hosts that ended since.
pub async fn silences_ended(conn: &mut Conn, since: Timestamp) -> Result<Vec<SilenceRow>> {
    let raws = query_as!(
        SilenceRaw,
        r#"SELECT id AS alert_id, subject AS host_id, created_at AS from_at, cleared_at AS "to_at!: i64" FROM alerts
           WHERE kind = 'host_unreachable' AND cleared_at > $1 ORDER BY cleared_at, id"#,
        since.as_micros()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// For the worker: what ran on a host in `[from, to)`, of any tenant.
pub async fn segments_on_host(
    conn: &mut Conn,
    host: &HostId,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<SegmentRow>> {
    let raws = query_as!(
        SegmentRaw,
        "SELECT s.id, s.tenant_id, s.instance_id, s.generation, s.sku, s.meter_gpu_uuid, s.price_version,
             s.micros_per_hour, s.boot_id, s.anchor_mono_ms, s.started_at, s.ended_at, s.close_reason, s.covered,
             s.settled_seconds, s.settled_micros, s.row_version, s.run_until_mono_ms, s.exhausts_at, s.updated_at
         FROM usage_segments s JOIN leases l ON l.instance_id = s.instance_id AND l.generation = s.generation
         WHERE l.host_id = $1 AND s.started_at < $3 AND (s.ended_at IS NULL OR s.ended_at > $2)
         ORDER BY s.started_at, s.id",
        host.as_str(),
        from.as_micros(),
        to.as_micros()
    );
    take_all(raws.fetch_all(conn).await?)
}
