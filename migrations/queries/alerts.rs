//! What operators should look at. One open alert for each kind and subject.

use sqlx::{query, query_as};
use tarn_protocol::ids::EventId;
use tarn_protocol::units::Timestamp;
use tarn_rows::Page;
use tarn_rows::alerts::{AlertRaw, AlertRow};

use super::{Conn, Result, put, take_all};

macro_rules! select_alert {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            AlertRaw,
            "SELECT id, kind, subject, detail, created_at, cleared_at FROM alerts " + $tail
            $(, $arg)*
        )
    };
}

/// `false`: one of this kind and subject is open already.
pub async fn open_alert(conn: &mut Conn, alert: &AlertRow) -> Result<bool> {
    let row = put(alert)?;
    let done = query!(
        "INSERT INTO alerts (id, kind, subject, detail, created_at, cleared_at) VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (kind, subject) WHERE cleared_at IS NULL DO NOTHING",
        row.id,
        row.kind,
        row.subject,
        row.detail,
        row.created_at,
        row.cleared_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// `false`: none is open.
pub async fn clear_alert(conn: &mut Conn, kind: &str, subject: &str, now: Timestamp) -> Result<bool> {
    let done = query!(
        "UPDATE alerts SET cleared_at = $3 WHERE kind = $1 AND subject = $2 AND cleared_at IS NULL",
        kind,
        subject,
        now.as_micros()
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

pub async fn alerts_open(conn: &mut Conn, page: Page<'_, EventId>) -> Result<Vec<AlertRow>> {
    let raws = select_alert!(
        "WHERE cleared_at IS NULL AND id > $1 ORDER BY id LIMIT $2",
        page.above(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Open and cleared, newest first.
pub async fn alerts(conn: &mut Conn, page: Page<'_, EventId>) -> Result<Vec<AlertRow>> {
    let raws = select_alert!("WHERE id < $1 ORDER BY id DESC LIMIT $2", page.below(), page.limit());
    take_all(raws.fetch_all(conn).await?)
}
