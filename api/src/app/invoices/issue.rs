//! Issuing one invoice of one tenant: everything settled up to the end of a period that no invoice has yet.

use std::collections::HashMap;
use std::hash::BuildHasher;

use tarn_billing::charge::BucketWidth;
use tarn_billing::invoice::{
    Draft, InvalidInvoice, Invoice, InvoiceNumber, LINES_MAX, Line, Paid, Party, UsageLine,
};
use tarn_billing::money::Micros;
use tarn_billing::segment::Segment;
use tarn_protocol::ids::{InstanceId, InvoiceId, SegmentId};
use tarn_protocol::units::Timestamp;
use tarn_rows::invoices::{InvoiceLineRow, InvoiceRow};
use tarn_rows::{Json, Page, TenantScope};
use tarn_store::{StoreError, Tx};

use crate::app::act::Act;
use crate::app::metering::stored::{self, corrupt};
use crate::config::Seller;

/// Segments read at once.
const SEGMENTS_PER_READ: u32 = 500;

#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    #[error("the period has not ended yet")]
    PeriodOpen,
    #[error("the last invoice ends at that instant or later")]
    PeriodCovered,
    #[error("nothing was used that is not on an invoice already")]
    Nothing,
    #[error(transparent)]
    Invalid(#[from] InvalidInvoice),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Issues the invoice of everything settled before `period_to` that no invoice has taken. The period begins where the last one ended,
/// or with the calendar month in which it ends, whichever is later. Seconds that were proven only after their own period was
/// invoiced are on it too.
pub async fn issue(
    tx: &mut Tx,
    act: &Act,
    seller: &Seller,
    scope: &TenantScope,
    period_to: Timestamp,
) -> Result<Invoice, IssueError> {
    if period_to > act.now {
        return Err(IssueError::PeriodOpen);
    }
    tx.lock_tenant(scope).await?;
    let last_end = tx.last_invoice(scope).await?.map(|last| last.period_to);
    if last_end.is_some_and(|end| end > period_to) {
        return Err(IssueError::PeriodCovered);
    }
    let month = BucketWidth::Month.start(period_to.plus_micros(-1));
    // A second invoice up to the same instant holds what the first had no room for, or what was proven since.
    let period_from = last_end.filter(|end| *end < period_to).map_or(month, |end| end.max(month));
    let lines = usage(tx, scope, period_to).await?;
    if lines.is_empty() {
        return Err(IssueError::Nothing);
    }
    let draft = Draft {
        id: InvoiceId::new(act.now, act.bits()),
        tenant_id: scope.tenant_id().clone(),
        corrects: None,
        seller: seller.party.clone(),
        buyer: buyer(tx, scope).await?,
        period_from,
        period_to,
        issued_at: act.now,
        lines: lines.into_iter().map(Line::Usage).collect(),
    };
    let invoice = number(tx, seller, draft).await?;
    insert(tx, scope, &invoice).await?;
    Ok(invoice)
}

/// Who the tenant is on paper: what it told, or its name.
pub async fn buyer(tx: &mut Tx, scope: &TenantScope) -> Result<Party, StoreError> {
    if let Some(details) = tx.billing_details(scope).await? {
        return Ok(details.party.0);
    }
    let tenant = tx.tenant(scope).await?;
    Ok(Party { name: tenant.map(|tenant| tenant.name).unwrap_or_default(), ..Party::default() })
}

/// Gives a draft the next number of its seller and year.
pub async fn number(tx: &mut Tx, seller: &Seller, draft: Draft) -> Result<Invoice, IssueError> {
    let year = year_of(draft.issued_at);
    let number = tx.next_invoice_number(&seller.code, year).await?;
    Ok(Invoice::new(draft, InvoiceNumber { seller: seller.code.clone(), year, number })?)
}

fn year_of(at: Timestamp) -> i64 {
    let moment = jiff::Timestamp::from_microsecond(at.as_micros()).unwrap_or_default();
    i64::from(jiff::tz::TimeZone::UTC.to_datetime(moment).year())
}

/// Stores the paper; its lines are stored by whoever knows what they stand for.
pub async fn store(tx: &mut Tx, scope: &TenantScope, invoice: &Invoice) -> Result<(), StoreError> {
    let row = InvoiceRow {
        id: invoice.id.clone(),
        tenant_id: invoice.tenant_id.clone(),
        kind: invoice.kind,
        seller: invoice.number.seller.clone(),
        year: invoice.number.year,
        number: invoice.number.number,
        corrects: invoice.corrects.as_ref().map(|corrected| corrected.id.clone()),
        period_from: invoice.period_from,
        period_to: invoice.period_to,
        total_micros: invoice.total,
        document: Json(invoice.clone()),
        issued_at: invoice.issued_at,
    };
    tx.insert_invoice(scope, &row).await
}

async fn insert(tx: &mut Tx, scope: &TenantScope, invoice: &Invoice) -> Result<(), StoreError> {
    store(tx, scope, invoice).await?;
    for (place, line) in (0..).zip(&invoice.lines) {
        let Line::Usage(line) = line else { continue };
        let row = InvoiceLineRow {
            invoice_id: invoice.id.clone(),
            place,
            segment_id: line.segment_id.clone(),
            from_s: line.from,
            to_s: line.to,
            amount_micros: line.amount,
        };
        tx.insert_invoice_line(&row).await?;
    }
    Ok(())
}

/// The lines, cards before disks, each in the order in which they began.
async fn usage(tx: &mut Tx, scope: &TenantScope, period_to: Timestamp) -> Result<Vec<UsageLine>, StoreError> {
    let mut labels = HashMap::new();
    let mut lines = Vec::new();
    let mut after: Option<SegmentId> = None;
    while lines.len() < LINES_MAX {
        let page = Page { after: after.as_ref(), limit: SEGMENTS_PER_READ };
        let rows = tx.uninvoiced_segments(scope, period_to, page).await?;
        let Some(last) = rows.last() else { break };
        after = Some(last.id.clone());
        for row in &rows {
            let segment = stored::segment(row).map_err(corrupt)?;
            lines.extend(line(tx, scope, &mut labels, &segment, period_to).await?);
        }
    }
    after = None;
    while lines.len() < LINES_MAX {
        let page = Page { after: after.as_ref(), limit: SEGMENTS_PER_READ };
        let rows = tx.uninvoiced_storage(scope, period_to, page).await?;
        let Some(last) = rows.last() else { break };
        after = Some(last.id.clone());
        for row in &rows {
            let segment = stored::storage_segment(row).map_err(corrupt)?;
            lines.extend(line(tx, scope, &mut labels, &segment, period_to).await?);
        }
    }
    lines.truncate(LINES_MAX);
    Ok(lines)
}

async fn line(
    tx: &mut Tx,
    scope: &TenantScope,
    labels: &mut HashMap<InstanceId, String>,
    segment: &Segment,
    period_to: Timestamp,
) -> Result<Option<UsageLine>, StoreError> {
    let invoiced = tx.invoiced_seconds(scope, segment.id()).await?;
    let label = label(tx, scope, labels, &segment.terms().instance_id).await?;
    let Some(line) = UsageLine::next(segment, label, invoiced, period_to) else { return Ok(None) };
    let (from, to) = line.span();
    let paid = paid(tx, scope, segment.id(), (from, to)).await?;
    Ok(Some(UsageLine { paid, ..line }))
}

/// The label of an instance at this moment.
pub async fn label<S: BuildHasher>(
    tx: &mut Tx,
    scope: &TenantScope,
    labels: &mut HashMap<InstanceId, String, S>,
    id: &InstanceId,
) -> Result<String, StoreError> {
    if let Some(known) = labels.get(id) {
        return Ok(known.clone());
    }
    let label = tx.instance(scope, id).await?.map(|instance| instance.label).unwrap_or_default();
    labels.insert(id.clone(), label.clone());
    Ok(label)
}

async fn paid(
    tx: &mut Tx,
    scope: &TenantScope,
    segment: &SegmentId,
    (from, to): (Micros, Micros),
) -> Result<Vec<Paid>, StoreError> {
    if from == to {
        return Ok(Vec::new());
    }
    let rows = tx.paid_between(scope, segment, from, to).await?;
    Ok(rows.into_iter().map(|row| Paid { from: row.kind, amount: row.amount_micros }).collect())
}
