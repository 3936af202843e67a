//! Invoices: written once. Their numbers are taken in the transaction that stores them.

use sqlx::{query, query_as};
use tarn_billing::money::Micros;
use tarn_billing::rate::Seconds;
use tarn_protocol::ids::{InvoiceId, SegmentId, TransferId};
use tarn_protocol::units::Timestamp;
use tarn_rows::invoices::{
    BillingDetailsRaw, BillingDetailsRow, CreditLineRow, InstanceLabelRaw, InstanceLabelRow, InvoiceHeadRaw,
    InvoiceHeadRow, InvoiceLineRaw, InvoiceLineRow, InvoiceRaw, InvoiceRow, InvoiceRunRaw, InvoiceRunRow,
    PaidRaw, PaidRow,
};
use tarn_rows::ledger::{TransferRaw, TransferRow};
use tarn_rows::{Page, TenantScope};

use super::{Conn, Result, put, take, take_all};

macro_rules! select_head {
    ($tail:literal $(, $arg:expr)*) => {
        query_as!(
            InvoiceHeadRaw,
            "SELECT id, kind, seller, year, number, corrects, period_from, period_to, total_micros, issued_at
             FROM invoices " + $tail
            $(, $arg)*
        )
    };
}

/// The next number of the seller's year. It stays locked until the transaction ends, and goes back if it fails.
pub async fn next_invoice_number(conn: &mut Conn, seller: &str, year: i64) -> Result<i64> {
    let row = query!(
        r#"INSERT INTO invoice_numbers (seller, year, last) VALUES ($1, $2, 1)
           ON CONFLICT (seller, year) DO UPDATE SET last = invoice_numbers.last + 1
           RETURNING last AS "last!: i64""#,
        seller,
        year
    );
    Ok(row.fetch_one(conn).await?.last)
}

pub async fn insert_invoice(conn: &mut Conn, scope: &TenantScope, invoice: &InvoiceRow) -> Result<()> {
    let row = put(invoice)?;
    query!(
        "INSERT INTO invoices (id, tenant_id, kind, seller, year, number, corrects, period_from, period_to,
             total_micros, document, issued_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        row.id,
        scope.as_str(),
        row.kind,
        row.seller,
        row.year,
        row.number,
        row.corrects,
        row.period_from,
        row.period_to,
        row.total_micros,
        row.document,
        row.issued_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// A second that is on another invoice already breaks the constraint `InvoicedSecond`.
pub async fn insert_invoice_line(conn: &mut Conn, line: &InvoiceLineRow) -> Result<()> {
    let row = put(line)?;
    query!(
        "INSERT INTO invoice_lines (invoice_id, place, segment_id, from_s, to_s, amount_micros)
         VALUES ($1, $2, $3, $4, $5, $6)",
        row.invoice_id,
        row.place,
        row.segment_id,
        row.from_s,
        row.to_s,
        row.amount_micros
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn insert_credit_line(conn: &mut Conn, line: &CreditLineRow) -> Result<()> {
    let row = put(line)?;
    query!(
        "INSERT INTO credit_lines (transfer_id, invoice_id, place, amount_micros) VALUES ($1, $2, $3, $4)",
        row.transfer_id,
        row.invoice_id,
        row.place,
        row.amount_micros
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn invoice(conn: &mut Conn, scope: &TenantScope, id: &InvoiceId) -> Result<Option<InvoiceRow>> {
    let raw = query_as!(
        InvoiceRaw,
        "SELECT id, tenant_id, kind, seller, year, number, corrects, period_from, period_to, total_micros, document,
             issued_at
         FROM invoices WHERE tenant_id = $1 AND id = $2",
        scope.as_str(),
        id.as_str()
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// Newest first.
pub async fn invoices(
    conn: &mut Conn,
    scope: &TenantScope,
    page: Page<'_, InvoiceId>,
) -> Result<Vec<InvoiceHeadRow>> {
    let raws = select_head!(
        "WHERE tenant_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3",
        scope.as_str(),
        page.below(),
        page.limit()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// The invoice (no credit note) whose period ends last.
pub async fn last_invoice(conn: &mut Conn, scope: &TenantScope) -> Result<Option<InvoiceHeadRow>> {
    let raw = select_head!(
        "WHERE tenant_id = $1 AND kind = 'invoice' ORDER BY period_to DESC, id DESC LIMIT 1",
        scope.as_str()
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

/// How many seconds of a segment are on invoices: all of `[0, n)`.
pub async fn invoiced_seconds(conn: &mut Conn, scope: &TenantScope, segment: &SegmentId) -> Result<Seconds> {
    let row = query!(
        r#"SELECT CAST(COALESCE(MAX(l.to_s), 0) AS BIGINT) AS "seconds!: i64"
           FROM invoice_lines l JOIN invoices i ON i.id = l.invoice_id WHERE i.tenant_id = $1 AND l.segment_id = $2"#,
        scope.as_str(),
        segment.as_str()
    );
    take(row.fetch_one(conn).await?.seconds)
}

/// Where a segment's seconds were invoiced, oldest first.
pub async fn invoice_lines_of_segment(
    conn: &mut Conn,
    scope: &TenantScope,
    segment: &SegmentId,
) -> Result<Vec<InvoiceLineRow>> {
    let raws = query_as!(
        InvoiceLineRaw,
        "SELECT l.invoice_id, l.place, l.segment_id, l.from_s, l.to_s, l.amount_micros
         FROM invoice_lines l JOIN invoices i ON i.id = l.invoice_id
         WHERE i.tenant_id = $1 AND l.segment_id = $2 ORDER BY l.from_s",
        scope.as_str(),
        segment.as_str()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// Which buckets paid micros `[from, to)` of what a segment was charged, counted in the order of its transfers.
pub async fn paid_between(
    conn: &mut Conn,
    scope: &TenantScope,
    segment: &SegmentId,
    from: Micros,
    to: Micros,
) -> Result<Vec<PaidRow>> {
    let raws = query_as!(
        PaidRaw,
        r#"SELECT g.kind AS "kind!: String",
               CAST(SUM((CASE WHEN t.ends < $4 THEN t.ends ELSE $4 END)
                   - (CASE WHEN t.begins > $3 THEN t.begins ELSE $3 END)) AS BIGINT) AS "amount_micros!: i64"
           FROM (SELECT grant_id, CAST(SUM(amount_micros) OVER (ORDER BY id) AS BIGINT) AS ends,
                     CAST(SUM(amount_micros) OVER (ORDER BY id) AS BIGINT) - amount_micros AS begins
                 FROM transfers WHERE tenant_id = $1 AND segment_id = $2 AND kind = 'usage') t
               JOIN credit_grants g ON g.id = t.grant_id
           WHERE t.ends > $3 AND t.begins < $4 GROUP BY g.kind ORDER BY g.kind"#,
        scope.as_str(),
        segment.as_str(),
        from.get(),
        to.get()
    );
    take_all(raws.fetch_all(conn).await?)
}

/// What a segment was charged before this transfer.
pub async fn charged_before(
    conn: &mut Conn,
    scope: &TenantScope,
    segment: &SegmentId,
    transfer: &TransferId,
) -> Result<Micros> {
    let row = query!(
        r#"SELECT CAST(COALESCE(SUM(amount_micros), 0) AS BIGINT) AS "sum!: i64" FROM transfers
           WHERE tenant_id = $1 AND segment_id = $2 AND kind = 'usage' AND id < $3"#,
        scope.as_str(),
        segment.as_str(),
        transfer.as_str()
    );
    Ok(Micros::new(row.fetch_one(conn).await?.sum))
}

/// For the invoice worker: reversals of invoiced segments that no credit note has yet, of any tenant, oldest first.
pub async fn reversals_to_credit(conn: &mut Conn, limit: u32) -> Result<Vec<TransferRow>> {
    let raws = query_as!(
        TransferRaw,
        "SELECT t.id, t.kind, t.debit_account_id, t.credit_account_id, t.amount_micros, t.tenant_id, t.segment_id,
             t.grant_id, t.reverses, t.external_provider, t.external_id, t.memo, t.created_at
         FROM transfers t
         WHERE t.kind = 'reversal' AND NOT EXISTS (SELECT 1 FROM credit_lines c WHERE c.transfer_id = t.id)
             AND EXISTS (SELECT 1 FROM invoice_lines l WHERE l.segment_id = t.segment_id)
         ORDER BY t.id LIMIT $1",
        i64::from(limit)
    );
    take_all(raws.fetch_all(conn).await?)
}

/// The monthly run of the latest period.
pub async fn newest_invoice_run(conn: &mut Conn) -> Result<Option<InvoiceRunRow>> {
    let raw = query_as!(
        InvoiceRunRaw,
        "SELECT period_to, after_tenant, finished_at FROM invoice_runs ORDER BY period_to DESC LIMIT 1"
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

pub async fn put_invoice_run(conn: &mut Conn, run: &InvoiceRunRow) -> Result<()> {
    let row = put(run)?;
    query!(
        "INSERT INTO invoice_runs (period_to, after_tenant, finished_at) VALUES ($1, $2, $3)
         ON CONFLICT (period_to) DO UPDATE SET after_tenant = excluded.after_tenant,
             finished_at = excluded.finished_at",
        row.period_to,
        row.after_tenant,
        row.finished_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

pub async fn billing_details(conn: &mut Conn, scope: &TenantScope) -> Result<Option<BillingDetailsRow>> {
    let raw = query_as!(
        BillingDetailsRaw,
        "SELECT tenant_id, party, updated_at FROM billing_details WHERE tenant_id = $1",
        scope.as_str()
    );
    raw.fetch_optional(conn).await?.map(take).transpose()
}

pub async fn put_billing_details(
    conn: &mut Conn,
    scope: &TenantScope,
    details: &BillingDetailsRow,
) -> Result<()> {
    let row = put(details)?;
    query!(
        "INSERT INTO billing_details (tenant_id, party, updated_at) VALUES ($1, $2, $3)
         ON CONFLICT (tenant_id) DO UPDATE SET party = excluded.party, updated_at = excluded.updated_at",
        scope.as_str(),
        row.party,
        row.updated_at
    )
    .execute(conn)
    .await?;
    Ok(())
}

/// Labels of the instances that lived at some moment of `[from, to)`.
pub async fn instance_labels(
    conn: &mut Conn,
    scope: &TenantScope,
    from: Timestamp,
    to: Timestamp,
) -> Result<Vec<InstanceLabelRow>> {
    let raws = query_as!(
        InstanceLabelRaw,
        "SELECT id, label FROM instances
         WHERE tenant_id = $1 AND created_at < $2 AND (terminated_at IS NULL OR terminated_at > $3) ORDER BY id",
        scope.as_str(),
        to.as_micros(),
        from.as_micros()
    );
    take_all(raws.fetch_all(conn).await?)
}
