//! Boots of hosts; for agents' calls only.

use sqlx::{query, query_as};
use tarn_protocol::ids::HostId;
use tarn_protocol::units::BootId;
use tarn_rows::boots::{HostBootRaw, HostBootRow};

use super::{Conn, Result, put, take_all};

/// In the order in which they were first heard of.
pub async fn host_boots(conn: &mut Conn, host: &HostId) -> Result<Vec<HostBootRow>> {
    let raws = query_as!(
        HostBootRaw,
        "SELECT host_id, boot_id, first_at, seq, last_at, last_mono_ms FROM host_boots
         WHERE host_id = $1 ORDER BY first_at, boot_id",
        host.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Whether this is the newest boot of a host other than `host`: one machine with two identities. Reads every host, so it is asked about
/// boots that `host` was never heard of before.
pub async fn boot_is_of_another_host(conn: &mut Conn, boot: &BootId, host: &HostId) -> Result<bool> {
    let found =
        query!("SELECT id FROM hosts WHERE boot_id = $1 AND id <> $2 LIMIT 1", boot.as_str(), host.as_str());
    Ok(found.fetch_optional(conn).await?.is_some())
}

/// Remembers an accepted report of a boot.
pub async fn upsert_host_boot(conn: &mut Conn, boot: &HostBootRow) -> Result<()> {
    let row = put(boot)?;
    query!(
        "INSERT INTO host_boots (host_id, boot_id, first_at, seq, last_at, last_mono_ms)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (host_id, boot_id) DO UPDATE SET seq = excluded.seq, last_at = excluded.last_at,
             last_mono_ms = excluded.last_mono_ms",
        row.host_id,
        row.boot_id,
        row.first_at,
        row.seq,
        row.last_at,
        row.last_mono_ms
    )
    .execute(conn)
    .await?;
    Ok(())
}
