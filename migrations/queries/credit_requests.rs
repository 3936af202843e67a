//! Credit that operators ask for and give. For operators and workers: of any tenant.

use sqlx::{query, query_as};
use tarn_billing::money::Micros;
use tarn_protocol::ids::{CreditRequestId, TenantId, UserId};
use tarn_protocol::units::Timestamp;
use tarn_rows::Page;
use tarn_rows::operators::{CreditRequestRaw, CreditRequestRow, CreditState};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_credit_request {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            CreditRequestRaw,
            "SELECT id, tenant_id, kind, amount_micros, grant_expires_at, reason, state, four_eyes, requested_by,
                 decided_by, decision, grant_id, created_at, expires_at, decided_at
             FROM credit_requests " + $tail
            $(, $arg)*
        )
    };
}

pub async fn insert_credit_request(conn: &mut Conn, request: &CreditRequestRow) -> Result<()> {
    let row = put(request)?;
    query!(
        "INSERT INTO credit_requests (id, tenant_id, kind, amount_micros, grant_expires_at, reason, state, four_eyes,
             requested_by, decided_by, decision, grant_id, created_at, expires_at, decided_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)",
        row.id,
        row.tenant_id,
        row.kind,
        row.amount_micros,
        row.grant_expires_at,
        row.reason,
        row.state,
        row.four_eyes,
        row.requested_by,
        row.decided_by,
        row.decision,
        row.grant_id,
        row.created_at,
        row.expires_at,
        row.decided_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn credit_request(conn: &mut Conn, id: &CreditRequestId) -> Result<Option<CreditRequestRow>> {
    select_credit_request!("WHERE id = $1", id.as_str()).fetch_optional(conn).await?.map(take).transpose()
}

/// Newest first; of one state and one tenant, or of all.
pub async fn credit_requests(
    conn: &mut Conn,
    state: Option<CreditState>,
    tenant: Option<&TenantId>,
    page: Page<'_, CreditRequestId>,
) -> Result<Vec<CreditRequestRow>> {
    let raws = select_credit_request!(
        "WHERE (state = $1 OR $1 IS NULL) AND (tenant_id = $2 OR $2 IS NULL) AND id < $3 ORDER BY id DESC LIMIT $4",
        state.map(CreditState::as_str),
        tenant.map(TenantId::as_str),
        page.below(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Writes the decision on a request that is still pending and, unless it is its expiry, in time. `false`: it is not.
pub async fn decide_credit_request(conn: &mut Conn, decided: &CreditRequestRow) -> Result<bool> {
    let row = put(decided)?;
    let done = query!(
        "UPDATE credit_requests SET state = $2, decided_by = $3, decision = $4, grant_id = $5, decided_at = $6
         WHERE id = $1 AND state = 'pending' AND (expires_at > $6 OR $2 = 'expired')",
        row.id,
        row.state,
        row.decided_by,
        row.decision,
        row.grant_id,
        row.decided_at
    );
    Ok(done.execute(conn).await?.rows_affected() == 1)
}

/// Pending ones whose time is over.
pub async fn credit_requests_expired(
    conn: &mut Conn,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<CreditRequestRow>> {
    let raws = select_credit_request!(
        "WHERE state = 'pending' AND expires_at <= $1 ORDER BY expires_at, id LIMIT $2",
        now.as_micros(),
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// What an operator gave without another one's eyes after an instant.
pub async fn credit_given_alone(conn: &mut Conn, operator: &UserId, after: Timestamp) -> Result<Micros> {
    let sum = query!(
        r#"SELECT CAST(COALESCE(SUM(amount_micros), 0) AS BIGINT) AS "sum!: i64" FROM credit_requests
           WHERE requested_by = $1 AND created_at > $2 AND state = 'given' AND NOT four_eyes"#,
        operator.as_str(),
        after.as_micros()
    );
    Ok(Micros::new(sum.fetch_one(conn).await?.sum))
}
