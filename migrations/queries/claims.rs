//! Which replica runs which worker. A replica claims a worker, renews while it works, and writes only in a transaction in which
//! [`holds_claim`] said yes.

use sqlx::{query, query_as};
use tarn_protocol::units::{Generation, Timestamp};
use tarn_rows::claims::{ClaimRaw, ClaimRow};

use super::{Conn, Result, take};

/// Takes a worker that nobody holds, that expired, or that is the holder's own (renewal keeps the fence). `None`: another replica
/// holds it.
pub async fn claim_worker(
    conn: &mut Conn,
    worker: &str,
    holder: &str,
    now: Timestamp,
    expires_at: Timestamp,
) -> Result<Option<ClaimRow>> {
    query_as!(
        ClaimRaw,
        r#"INSERT INTO worker_claims (worker, holder, fence, expires_at) VALUES ($1, $2, 1, $4)
           ON CONFLICT (worker) DO UPDATE SET
               fence = CASE WHEN worker_claims.holder = excluded.holder THEN worker_claims.fence
                            ELSE worker_claims.fence + 1 END,
               holder = excluded.holder, expires_at = excluded.expires_at
           WHERE worker_claims.holder = excluded.holder OR worker_claims.expires_at <= $3
           RETURNING worker AS "worker!: String", holder AS "holder!: String", fence AS "fence!: i64",
               expires_at AS "expires_at!: i64""#,
        worker,
        holder,
        now.as_micros(),
        expires_at.as_micros()
    )
    .fetch_optional(conn)
    .await?
    .map(take)
    .transpose()
}

/// Proves, and locks until the transaction ends, that the fence is still current: no newer holder can have begun.
pub async fn holds_claim(conn: &mut Conn, worker: &str, fence: Generation) -> Result<bool> {
    let done = query!(
        "UPDATE worker_claims SET holder = holder WHERE worker = $1 AND fence = $2",
        worker,
        fence.get()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Gives a worker back at shutdown, so that another replica need not wait for the expiry.
pub async fn release_claim(conn: &mut Conn, worker: &str, fence: Generation, now: Timestamp) -> Result<bool> {
    let done = query!(
        "UPDATE worker_claims SET expires_at = $3, fence = fence + 1, holder = '' WHERE worker = $1 AND fence = $2",
        worker,
        fence.get(),
        now.as_micros()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}
