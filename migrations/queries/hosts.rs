//! Hosts. All functions are for agents' calls, workers and operators: a tenant names no host.

use sqlx::{query, query_as};
use tarn_protocol::ids::HostId;
use tarn_protocol::units::{Generation, Timestamp};
use tarn_rows::Page;
use tarn_rows::hosts::{HostRaw, HostReport, HostRow};
use tarn_rows::secrets::SecretDigest;

use super::{Conn, Result, put, take, take_all};

macro_rules! select_host {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            HostRaw,
            r#"SELECT id, name, region, credential_sha256, epoch, boot_id, report_seq, reported_at, reported_mono_ms,
                 agent_version, driver_version, inventory, cordoned, unreachable_since, quarantine_reason,
                 r.desired AS "desired_revision!: i64", created_at
             FROM hosts JOIN host_revisions r ON r.host_id = hosts.id "# + $tail
            $(, $arg)*
        )
    };
}

pub async fn insert_host(conn: &mut Conn, host: &HostRow) -> Result<()> {
    let row = put(host)?;
    query!(
        "INSERT INTO hosts (id, name, region, credential_sha256, epoch, boot_id, report_seq, reported_at,
             reported_mono_ms, agent_version, driver_version, inventory, cordoned, unreachable_since,
             quarantine_reason, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
        row.id,
        row.name,
        row.region,
        row.credential_sha256,
        row.epoch,
        row.boot_id,
        row.report_seq,
        row.reported_at,
        row.reported_mono_ms,
        row.agent_version,
        row.driver_version,
        row.inventory,
        row.cordoned,
        row.unreachable_since,
        row.quarantine_reason,
        row.created_at
    )
    .execute(&mut *conn)
    .await?;
    query!("INSERT INTO host_revisions (host_id, desired) VALUES ($1, $2)", row.id, row.desired_revision)
        .execute(conn)
        .await?;
    Ok(())
}

pub async fn host(conn: &mut Conn, id: &HostId) -> Result<Option<HostRow>> {
    select_host!("WHERE id = $1", id.as_str()).fetch_optional(conn).await?.map(take).transpose()
}

pub async fn host_by_credential(conn: &mut Conn, credential: &SecretDigest) -> Result<Option<HostRow>> {
    let raw = select_host!("WHERE credential_sha256 = $1", credential.as_str());
    raw.fetch_optional(conn).await?.map(take).transpose()
}

pub async fn hosts(conn: &mut Conn, page: Page<'_, HostId>) -> Result<Vec<HostRow>> {
    let raws = select_host!("WHERE id > $1 ORDER BY id LIMIT $2", page.above(), page.limit());
    take_all(raws.fetch_all(conn).await?)
}

/// Hosts whose newest report is older than `before` and that are not flagged yet.
pub async fn hosts_silent_since(conn: &mut Conn, before: Timestamp) -> Result<Vec<HostRow>> {
    let raws =
        select_host!("WHERE unreachable_since IS NULL AND reported_at < $1 ORDER BY id", before.as_micros());
    take_all(raws.fetch_all(conn).await?)
}

/// Accepts a report: of the same boot, only a higher sequence; another boot always, whose sequence starts anew. Clears the
/// unreachable flag, and locks the host until the transaction ends, so that reports of one host apply one after another.
/// `false`: older than one accepted already.
pub async fn accept_report(conn: &mut Conn, report: &HostReport) -> Result<bool> {
    let row = put(report)?;
    let done = query!(
        "UPDATE hosts SET boot_id = $2, report_seq = $3, reported_mono_ms = $4, reported_at = $5,
             unreachable_since = NULL
         WHERE id = $1 AND (boot_id IS NULL OR boot_id <> $2 OR report_seq < $3)",
        row.host_id,
        row.boot_id,
        row.seq,
        row.mono_ms,
        row.received_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Stores the hardware that an accepted report brought, and the versions with it.
pub async fn set_host_inventory(conn: &mut Conn, host: &HostRow) -> Result<bool> {
    let row = put(host)?;
    let done = query!(
        "UPDATE hosts SET inventory = $2, driver_version = $3, agent_version = $4 WHERE id = $1",
        row.id,
        row.inventory,
        row.driver_version,
        row.agent_version
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Flags a host, unless a report newer than `silent_before` came meanwhile.
pub async fn set_unreachable(
    conn: &mut Conn,
    id: &HostId,
    silent_before: Timestamp,
    now: Timestamp,
) -> Result<bool> {
    let done = query!(
        "UPDATE hosts SET unreachable_since = $3
         WHERE id = $1 AND unreachable_since IS NULL AND reported_at < $2",
        id.as_str(),
        silent_before.as_micros(),
        now.as_micros()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

pub async fn set_cordoned(conn: &mut Conn, id: &HostId, cordoned: bool) -> Result<bool> {
    let done = query!("UPDATE hosts SET cordoned = $2 WHERE id = $1", id.as_str(), cordoned);
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// `None` lifts the quarantine.
pub async fn set_host_quarantine(conn: &mut Conn, id: &HostId, reason: Option<&str>) -> Result<bool> {
    let done = query!("UPDATE hosts SET quarantine_reason = $2 WHERE id = $1", id.as_str(), reason);
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Says that what should run there changed; returns the new revision. It waits for no report: see the migration that made the table.
pub async fn bump_desired_revision(conn: &mut Conn, id: &HostId) -> Result<Option<i64>> {
    let bumped = query!(
        r#"UPDATE host_revisions SET desired = desired + 1 WHERE host_id = $1
           RETURNING desired AS "revision!: i64""#,
        id.as_str()
    );
    Ok(bumped.fetch_optional(conn).await?.map(|row| row.revision))
}

/// The revision alone: what a waiting agent's request polls.
pub async fn desired_revision(conn: &mut Conn, id: &HostId) -> Result<Option<i64>> {
    let row = query!("SELECT desired FROM host_revisions WHERE host_id = $1", id.as_str());
    Ok(row.fetch_optional(conn).await?.map(|row| row.desired))
}

/// Fences a host: its agent must fetch its desired state again before it acts. Returns the new epoch.
pub async fn bump_epoch(conn: &mut Conn, id: &HostId) -> Result<Option<Generation>> {
    let bumped = query!(
        r#"UPDATE hosts SET epoch = epoch + 1 WHERE id = $1 RETURNING epoch AS "epoch!: i64""#,
        id.as_str()
    );
    let Some(row) = bumped.fetch_optional(&mut *conn).await? else { return Ok(None) };
    bump_desired_revision(conn, id).await?;
    Ok(Some(Generation::new(row.epoch)))
}

/// A rejoin: a new credential, which ends the old one, and a new epoch.
pub async fn rejoin_host(conn: &mut Conn, host: &HostRow) -> Result<bool> {
    let row = put(host)?;
    let done = query!(
        "UPDATE hosts SET credential_sha256 = $2, name = $3, agent_version = $4, epoch = epoch + 1 WHERE id = $1",
        row.id,
        row.credential_sha256,
        row.name,
        row.agent_version
    );
    if done.execute(&mut *conn).await?.rows_affected() == 0 {
        return Ok(false);
    }
    bump_desired_revision(conn, &host.id).await?;
    Ok(true)
}
