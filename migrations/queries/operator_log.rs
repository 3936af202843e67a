//! The operators' log: appended to, never changed. For operators and workers.

use sqlx::{query, query_as};
use tarn_rows::operators::{DeedRaw, DeedRow, LogHeadRaw, LogHeadRow};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_deed {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            DeedRaw,
            "SELECT seq, operator_id, credential_id, request_id, action, subject, detail, created_at, sha256
             FROM operator_log " + $tail
            $(, $arg)*
        )
    };
}

/// Takes the next number, and the turn: until this transaction ends, nobody else writes a line. What is answered is the line before.
pub async fn take_log_turn(conn: &mut Conn) -> Result<LogHeadRow> {
    let raw = query_as!(
        LogHeadRaw,
        r#"UPDATE operator_log_head SET seq = seq + 1 WHERE id = 1
           RETURNING seq - 1 AS "seq!: i64", sha256 AS "sha256!: String""#
    );
    take(raw.fetch_one(conn).await?)
}

/// Appends the line whose turn [`take_log_turn`] took.
pub async fn append_deed(conn: &mut Conn, deed: &DeedRow) -> Result<()> {
    let row = put(deed)?;
    query!(
        "INSERT INTO operator_log (seq, operator_id, credential_id, request_id, action, subject, detail, created_at, sha256)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        row.seq,
        row.operator_id,
        row.credential_id,
        row.request_id,
        row.action,
        row.subject,
        row.detail,
        row.created_at,
        row.sha256
    )
    .execute(&mut *conn)
    .await?;
    query!("UPDATE operator_log_head SET sha256 = $1 WHERE id = 1", row.sha256).execute(conn).await?;
    Ok(())
}

/// Newest first, below `seq`.
pub async fn deeds_below(conn: &mut Conn, seq: i64, limit: u32) -> Result<Vec<DeedRow>> {
    take_all(
        select_deed!("WHERE seq < $1 ORDER BY seq DESC LIMIT $2", seq, i64::from(limit))
            .fetch_all(conn)
            .await?,
    )
}

/// Of one thing, newest first, below `seq`.
pub async fn deeds_of_subject(conn: &mut Conn, subject: &str, seq: i64, limit: u32) -> Result<Vec<DeedRow>> {
    let raws = select_deed!(
        "WHERE subject = $1 AND seq < $2 ORDER BY seq DESC LIMIT $3",
        subject,
        seq,
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Oldest first, above `seq`: for the check of the chain.
pub async fn deeds_above(conn: &mut Conn, seq: i64, limit: u32) -> Result<Vec<DeedRow>> {
    take_all(
        select_deed!("WHERE seq > $1 ORDER BY seq LIMIT $2", seq, i64::from(limit)).fetch_all(conn).await?,
    )
}

pub async fn log_head(conn: &mut Conn) -> Result<LogHeadRow> {
    let raw = query_as!(LogHeadRaw, "SELECT seq, sha256 FROM operator_log_head WHERE id = 1");
    take(raw.fetch_one(conn).await?)
}
