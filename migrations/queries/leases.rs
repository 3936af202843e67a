//! Claims on cards.

use sqlx::{query, query_as};
use tarn_protocol::ids::{HostId, InstanceId, LeaseId};
use tarn_protocol::units::{Generation, Timestamp};
use tarn_rows::TenantScope;
use tarn_rows::counts::{QuotaUse, QuotaUseRaw};
use tarn_rows::leases::{LeaseGpuRaw, LeaseGpuRow, LeaseRaw, LeaseRow};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_lease {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            LeaseRaw,
            "SELECT id, instance_id, tenant_id, host_id, generation, created_at, released_at FROM leases " + $tail
            $(, $arg)*
        )
    };
}

macro_rules! select_lease_gpu {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            LeaseGpuRaw,
            "SELECT lease_id, gpu_uuid, place, link_class, grade, read_mb_per_second, certificate_id, released_at
             FROM lease_gpus " + $tail
            $(, $arg)*
        )
    };
}

/// A lease with its cards. A card in another live lease, or a live lease of the instance, breaks a constraint of that name; the
/// transaction is then to be rolled back.
pub async fn insert_lease(
    conn: &mut Conn,
    scope: &TenantScope,
    lease: &LeaseRow,
    gpus: &[LeaseGpuRow],
) -> Result<()> {
    let row = put(lease)?;
    // In order of UUID, so that two leases that want the same cards wait for each other in one order and never deadlock.
    let mut cards = gpus.iter().map(put).collect::<Result<Vec<_>>>()?;
    cards.sort_by(|a, b| a.gpu_uuid.cmp(&b.gpu_uuid));
    query!(
        "INSERT INTO leases (id, instance_id, tenant_id, host_id, generation, created_at, released_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
        row.id,
        row.instance_id,
        scope.as_str(),
        row.host_id,
        row.generation,
        row.created_at,
        row.released_at
    )
    .execute(&mut *conn)
    .await?;
    for card in cards {
        query!(
            "INSERT INTO lease_gpus (lease_id, gpu_uuid, place, link_class, grade, read_mb_per_second,
                 certificate_id, released_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
            row.id,
            card.gpu_uuid,
            card.place,
            card.link_class,
            card.grade,
            card.read_mb_per_second,
            card.certificate_id,
            card.released_at
        )
        .execute(&mut *conn)
        .await?;
    }
    Ok(())
}

/// Ends a lease and frees its cards, if it is still live and of the generation that the decision was about.
pub async fn release_lease(
    conn: &mut Conn,
    scope: &TenantScope,
    id: &LeaseId,
    decided: Generation,
    now: Timestamp,
) -> Result<bool> {
    let done = query!(
        "UPDATE leases SET released_at = $4
         WHERE tenant_id = $1 AND id = $2 AND generation = $3 AND released_at IS NULL",
        scope.as_str(),
        id.as_str(),
        decided.get(),
        now.as_micros()
    );
    if done.execute(&mut *conn).await?.rows_affected() == 0 {
        return Ok(false);
    }
    query!(
        "UPDATE lease_gpus SET released_at = $2 WHERE lease_id = $1 AND released_at IS NULL",
        id.as_str(),
        now.as_micros()
    )
    .execute(conn)
    .await?;
    Ok(true)
}

pub async fn live_lease(
    conn: &mut Conn,
    scope: &TenantScope,
    instance: &InstanceId,
) -> Result<Option<LeaseRow>> {
    let raw = select_lease!(
        "WHERE tenant_id = $1 AND instance_id = $2 AND released_at IS NULL",
        scope.as_str(),
        instance.as_str()
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// The newest lease, live or released.
pub async fn newest_lease(
    conn: &mut Conn,
    scope: &TenantScope,
    instance: &InstanceId,
) -> Result<Option<LeaseRow>> {
    let raw = select_lease!(
        "WHERE tenant_id = $1 AND instance_id = $2 ORDER BY generation DESC LIMIT 1",
        scope.as_str(),
        instance.as_str()
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// Primary first.
pub async fn lease_gpus(conn: &mut Conn, lease: &LeaseId) -> Result<Vec<LeaseGpuRow>> {
    let raws = select_lease_gpu!("WHERE lease_id = $1 ORDER BY place", lease.as_str());
    take_all(raws.fetch_all(conn).await?)
}

/// For agents' calls: every live lease on a host, of any tenant.
pub async fn leases_on_host(conn: &mut Conn, host: &HostId) -> Result<Vec<LeaseRow>> {
    let raws = select_lease!("WHERE host_id = $1 AND released_at IS NULL ORDER BY id", host.as_str());
    take_all(raws.fetch_all(conn).await?)
}

/// For agents' calls: the cards of every live lease on a host.
pub async fn lease_gpus_on_host(conn: &mut Conn, host: &HostId) -> Result<Vec<LeaseGpuRow>> {
    let raws = select_lease_gpu!(
        "WHERE released_at IS NULL AND lease_id IN (SELECT id FROM leases WHERE host_id = $1 AND released_at IS NULL)
         ORDER BY lease_id, place",
        host.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// What a tenant's live leases hold. True until the transaction ends once the tenant is locked.
pub async fn quota_use(conn: &mut Conn, scope: &TenantScope) -> Result<QuotaUse> {
    let raw = query_as!(
        QuotaUseRaw,
        r#"SELECT COUNT(*) AS "cards!: i64", CAST(COALESCE(SUM(c.memory_bytes), 0) AS BIGINT) AS "bytes!: i64"
           FROM leases l JOIN lease_gpus g ON g.lease_id = l.id JOIN gpus c ON c.uuid = g.gpu_uuid
           WHERE l.tenant_id = $1 AND g.released_at IS NULL"#,
        scope.as_str()
    );
    take(raw.fetch_one(conn).await?)
}

/// For agents' calls: the lease of one generation of an instance, live or released.
pub async fn lease_of_generation(
    conn: &mut Conn,
    instance: &InstanceId,
    generation: Generation,
) -> Result<Option<LeaseRow>> {
    let raw =
        select_lease!("WHERE instance_id = $1 AND generation = $2", instance.as_str(), generation.get());
    raw.fetch_optional(conn).await?.map(take).transpose()
}
