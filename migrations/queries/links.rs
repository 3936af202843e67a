//! Certificates of links, and orders to probe. For agents' calls, workers and operators.

use sqlx::{query, query_as};
use tarn_protocol::ids::{CertificateId, GpuUuid, HostId};
use tarn_protocol::units::Timestamp;
use tarn_rows::Page;
use tarn_rows::links::{CertificateRaw, CertificateRow, ProbeOrderRaw, ProbeOrderRow};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_certificate {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            CertificateRaw,
            "SELECT id, host_id, from_uuid, to_uuid, class, grade, passed, reason, read_mb_per_second,
                 write_mb_per_second, latency_nanos, driver_version, boot_id, probe, created_at, superseded_at
             FROM link_certificates " + $tail
            $(, $arg)*
        )
    };
}

/// Makes `certificate` the current verdict on its ordered pair: supersedes the one before and answers its order to probe.
pub async fn insert_certificate(conn: &mut Conn, certificate: &CertificateRow) -> Result<()> {
    let row = put(certificate)?;
    query!(
        "UPDATE link_certificates SET superseded_at = $3
         WHERE from_uuid = $1 AND to_uuid = $2 AND superseded_at IS NULL",
        row.from_uuid,
        row.to_uuid,
        row.created_at
    )
    .execute(&mut *conn)
    .await?;
    query!("DELETE FROM probe_orders WHERE from_uuid = $1 AND to_uuid = $2", row.from_uuid, row.to_uuid)
        .execute(&mut *conn)
        .await?;
    query!(
        "INSERT INTO link_certificates (id, host_id, from_uuid, to_uuid, class, grade, passed, reason,
             read_mb_per_second, write_mb_per_second, latency_nanos, driver_version, boot_id, probe, created_at,
             superseded_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)",
        row.id,
        row.host_id,
        row.from_uuid,
        row.to_uuid,
        row.class,
        row.grade,
        row.passed,
        row.reason,
        row.read_mb_per_second,
        row.write_mb_per_second,
        row.latency_nanos,
        row.driver_version,
        row.boot_id,
        row.probe,
        row.created_at,
        row.superseded_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn certificate(conn: &mut Conn, id: &CertificateId) -> Result<Option<CertificateRow>> {
    select_certificate!("WHERE id = $1", id.as_str()).fetch_optional(conn).await?.map(take).transpose()
}

/// Every certificate ever, newest first.
pub async fn certificates(conn: &mut Conn, page: Page<'_, CertificateId>) -> Result<Vec<CertificateRow>> {
    let raws = select_certificate!("WHERE id < $1 ORDER BY id DESC LIMIT $2", page.below(), page.limit());
    take_all(raws.fetch_all(conn).await?)
}

/// The current verdicts on one host's ordered pairs.
pub async fn certificates_of_host(conn: &mut Conn, host: &HostId) -> Result<Vec<CertificateRow>> {
    let raws = select_certificate!(
        "WHERE host_id = $1 AND superseded_at IS NULL ORDER BY from_uuid, to_uuid",
        host.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Ends current certificates that touch one card (an Xid, an operator): the pair has no verdict until it is probed again.
pub async fn revoke_certificates_of_gpu(
    conn: &mut Conn,
    gpu: &GpuUuid,
    reason: &str,
    now: Timestamp,
) -> Result<u64> {
    let done = query!(
        "UPDATE link_certificates SET superseded_at = $3, reason = $2
         WHERE superseded_at IS NULL AND (from_uuid = $1 OR to_uuid = $1)",
        gpu.as_str(),
        reason,
        now.as_micros()
    );
    Ok(done.execute(conn).await?.rows_affected())
}

/// Ends one current certificate.
pub async fn revoke_certificate(
    conn: &mut Conn,
    id: &CertificateId,
    reason: &str,
    now: Timestamp,
) -> Result<bool> {
    let done = query!(
        "UPDATE link_certificates SET superseded_at = $3, reason = $2 WHERE id = $1 AND superseded_at IS NULL",
        id.as_str(),
        reason,
        now.as_micros()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// `false`: ordered already.
pub async fn insert_probe_order(conn: &mut Conn, order: &ProbeOrderRow) -> Result<bool> {
    let row = put(order)?;
    let done = query!(
        "INSERT INTO probe_orders (from_uuid, to_uuid, host_id, created_at) VALUES ($1, $2, $3, $4)
         ON CONFLICT (from_uuid, to_uuid) DO NOTHING",
        row.from_uuid,
        row.to_uuid,
        row.host_id,
        row.created_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

pub async fn probe_orders_of_host(conn: &mut Conn, host: &HostId) -> Result<Vec<ProbeOrderRow>> {
    let raws = query_as!(
        ProbeOrderRaw,
        "SELECT from_uuid, to_uuid, host_id, created_at FROM probe_orders WHERE host_id = $1
         ORDER BY from_uuid, to_uuid",
        host.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Takes an order back.
pub async fn delete_probe_order(conn: &mut Conn, from: &GpuUuid, to: &GpuUuid) -> Result<bool> {
    let done =
        query!("DELETE FROM probe_orders WHERE from_uuid = $1 AND to_uuid = $2", from.as_str(), to.as_str());
    Ok(done.execute(conn).await?.rows_affected() == 1)
}
