//! Leases as reports read them. For operators, except where a scope is taken.

use sqlx::query_as;
use tarn_protocol::ids::{InstanceId, LeaseId};
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::reports::{LeasedRaw, LeasedRow};

use super::{Conn, Result, take_all};

macro_rules! select_leased {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            LeasedRaw,
            r#"SELECT l.id AS lease_id, l.instance_id, l.tenant_id, l.host_id, l.generation, i.offer_id,
                   p.gpu_uuid AS primary_gpu_uuid, c.model,
                   (SELECT COUNT(*) FROM lease_gpus g WHERE g.lease_id = l.id) AS "cards!: i64", l.created_at, l.released_at
               FROM leases l JOIN instances i ON i.id = l.instance_id
                   JOIN lease_gpus p ON p.lease_id = l.id AND p.place = 0 JOIN gpus c ON c.uuid = p.gpu_uuid "# + $tail
            $(, $arg)*
        )
    };
}

/// Live leases that began before an instant, above an id, in order of id.
pub async fn leased_still(
    conn: &mut Conn,
    before: Timestamp,
    above: Option<&LeaseId>,
    limit: u32,
) -> Result<Vec<LeasedRow>> {
    let raws = select_leased!(
        "WHERE l.released_at IS NULL AND l.id > $2 AND l.created_at < $1 ORDER BY l.id LIMIT $3",
        before.as_micros(),
        above.map_or("", LeaseId::as_str),
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Leases that began before an instant and were released after a place in the order of release.
pub async fn leased_until(
    conn: &mut Conn,
    (released_at, id): (Timestamp, &str),
    before: Timestamp,
    limit: u32,
) -> Result<Vec<LeasedRow>> {
    let raws = select_leased!(
        "WHERE (l.released_at, l.id) > ($1, $2) AND l.created_at < $3 ORDER BY l.released_at, l.id LIMIT $4",
        released_at.as_micros(),
        id,
        before.as_micros(),
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Every lease that an instance had, oldest first.
pub async fn leases_of_instance(
    conn: &mut Conn,
    scope: &TenantScope,
    instance: &InstanceId,
) -> Result<Vec<LeasedRow>> {
    let raws = select_leased!(
        "WHERE l.tenant_id = $1 AND l.instance_id = $2 ORDER BY l.generation",
        scope.as_str(),
        instance.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}
