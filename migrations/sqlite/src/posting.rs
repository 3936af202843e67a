//! A transfer with its two entries, one statement after the other: SQLite inserts into one table at a time.

use sqlx::query;
use tarn_rows::ledger::TransferRow;

use crate::Conn;
use crate::queries::ledger::changes;
use crate::queries::{Result, put};

/// Writes a transfer and its entries; `moved` is the number and the balance of each side that is a wallet. `false`: a transfer of this
/// id is there, and nothing was written.
pub async fn insert(conn: &mut Conn, transfer: &TransferRow, moved: [Option<(i64, i64)>; 2]) -> Result<bool> {
    let row = put(transfer)?;
    let [debited, credited] = changes(transfer);
    let [debit, credit] = moved.map(Option::unzip);
    let done = query!(
        "INSERT INTO transfers (id, kind, debit_account_id, credit_account_id, amount_micros, tenant_id, segment_id,
             grant_id, reverses, external_provider, external_id, memo, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT (id) DO NOTHING",
        row.id,
        row.kind,
        row.debit_account_id,
        row.credit_account_id,
        row.amount_micros,
        row.tenant_id,
        row.segment_id,
        row.grant_id,
        row.reverses,
        row.external_provider,
        row.external_id,
        row.memo,
        row.created_at
    );
    if done.execute(&mut *conn).await?.rows_affected() == 0 {
        return Ok(false);
    }
    query!(
        "INSERT INTO entries (transfer_id, account_id, amount_micros, seq, balance_after_micros, created_at)
         VALUES ($1, $2, $3, $4, $5, $10), ($1, $6, $7, $8, $9, $10)",
        transfer.id.as_str(),
        transfer.debit_account_id.as_str(),
        debited.get(),
        debit.0,
        debit.1,
        transfer.credit_account_id.as_str(),
        credited.get(),
        credit.0,
        credit.1,
        transfer.created_at.as_micros()
    )
    .execute(conn)
    .await?;
    Ok(true)
}
