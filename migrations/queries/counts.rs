//! Numbers for admin pages and metrics.

use sqlx::query_as;
use tarn_rows::counts::{FleetCounts, FleetCountsRaw};

use super::{Conn, Result, take};

pub async fn fleet_counts(conn: &mut Conn) -> Result<FleetCounts> {
    let raw = query_as!(
        FleetCountsRaw,
        r#"SELECT (SELECT COUNT(*) FROM hosts) AS "hosts!: i64",
               (SELECT COUNT(*) FROM hosts WHERE cordoned) AS "hosts_cordoned!: i64",
               (SELECT COUNT(*) FROM hosts WHERE unreachable_since IS NOT NULL) AS "hosts_unreachable!: i64",
               (SELECT COUNT(*) FROM gpus WHERE present) AS "gpus!: i64",
               (SELECT COUNT(*) FROM lease_gpus WHERE released_at IS NULL) AS "gpus_held!: i64",
               (SELECT COUNT(*) FROM gpus WHERE quarantined) AS "gpus_quarantined!: i64",
               (SELECT COUNT(*) FROM instances WHERE terminated_at IS NULL) AS "instances_live!: i64",
               (SELECT COUNT(*) FROM usage_segments WHERE ended_at IS NULL) AS "segments_open!: i64",
               (SELECT COUNT(*) FROM alerts WHERE cleared_at IS NULL) AS "alerts_open!: i64",
               (SELECT COUNT(*) FROM tenants) AS "tenants!: i64""#
    );
    take(raw.fetch_one(conn).await?)
}
