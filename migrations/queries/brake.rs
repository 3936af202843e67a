//! The brake on automatic destruction: what it judges by, and the slots of a window. For use cases and workers only.

use sqlx::{query, query_as};
use tarn_protocol::units::Timestamp;
use tarn_rows::brake::{AutomaticStepRow, FleetHealth, FleetHealthRaw};

use super::{Conn, Result, put, take};

pub async fn fleet_health(conn: &mut Conn, window_at: Timestamp) -> Result<FleetHealth> {
    let raw = query_as!(
        FleetHealthRaw,
        r#"SELECT (SELECT COUNT(*) FROM hosts) AS "hosts!: i64",
               (SELECT COUNT(*) FROM hosts WHERE unreachable_since IS NOT NULL) AS "hosts_unreachable!: i64",
               (SELECT COUNT(*) FROM automatic_steps WHERE window_at = $1) AS "steps!: i64""#,
        window_at.as_micros()
    );
    take(raw.fetch_one(conn).await?)
}

/// `false`: somebody else took this slot meanwhile.
pub async fn take_automatic_step(conn: &mut Conn, step: &AutomaticStepRow) -> Result<bool> {
    let row = put(step)?;
    let done = query!(
        "INSERT INTO automatic_steps (window_at, slot, kind, host_id, instance_id, taken_at) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (window_at, slot) DO NOTHING",
        row.window_at,
        row.slot,
        row.kind,
        row.host_id,
        row.instance_id,
        row.taken_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}
