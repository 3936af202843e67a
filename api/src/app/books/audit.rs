//! The audit: streams one snapshot of the database through [`tarn_billing::audit`].

use tarn_billing::audit::{Audited, Auditor, Difference, Rule};
use tarn_protocol::ids::GpuUuid;
use tarn_rows::audit::AuditSpanRow;
use tarn_store::{Store, StoreError, Tx};

use super::facts;
use super::pages::{LAST, Pages, WINDOW};
use crate::app::metering::purse::price;

#[derive(Debug, thiserror::Error)]
pub enum AuditFailed {
    /// The books do not follow from the facts.
    #[error(transparent)]
    Different(#[from] Difference),
    #[error("{rows} rows are more than the {rows_max} that this audit may read")]
    TooLarge { rows: u64, rows_max: u64 },
    #[error("the books could not be read")]
    Store(#[from] StoreError),
}

/// Audits everything that the database holds at one instant. `rows_max` bounds transfers, entries and segments together.
pub async fn audit(store: &Store, rows_max: Option<u64>) -> Result<Audited, AuditFailed> {
    store.snapshot(move |tx| Box::pin(async move { audit_here(tx, rows_max).await })).await
}

async fn audit_here(tx: &mut Tx, rows_max: Option<u64>) -> Result<Audited, AuditFailed> {
    let counts = tx.audit_counts().await?;
    let rows = counts.transfers + counts.entries + counts.segments;
    if let Some(rows_max) = rows_max.filter(|most| rows > *most) {
        return Err(AuditFailed::TooLarge { rows, rows_max });
    }
    let mut auditor = Auditor::new(prices(tx).await?)?;
    movements(tx, &mut auditor).await?;
    reversals(tx, &mut auditor).await?;
    wallets(tx, &mut auditor).await?;
    segments(tx, &mut auditor).await?;
    spans(tx, &mut auditor).await?;
    let counted = facts::counted(&counts);
    match auditor.finish(&counted) {
        Err(found) if found.rule == Rule::Complete => Err(stray(tx, found).await?.into()),
        done => Ok(done?),
    }
}

async fn prices(tx: &mut Tx) -> Result<Vec<tarn_billing::price::Price>, AuditFailed> {
    let rows = match tx.prices().await {
        Err(StoreError::Corrupt(bad)) => {
            return Err(Difference::new(Rule::Readable, "price book", "stored values", "prices", bad).into());
        }
        read => read?,
    };
    Ok(rows.into_iter().map(price).collect())
}

/// Windows of tenants: their grants, then their transfers.
async fn movements(tx: &mut Tx, auditor: &mut Auditor) -> Result<(), AuditFailed> {
    transfers_of_nobody(tx, auditor).await?;
    let mut above = String::new();
    loop {
        let end = tx.tenant_above(&above, WINDOW - 1).await?;
        let upto = end.as_deref().unwrap_or(LAST);
        grants_of(tx, auditor, &above, upto).await?;
        transfers_of(tx, auditor, &above, upto).await?;
        auditor.movements.end_of_tenants()?;
        let Some(end) = end else { return Ok(()) };
        above = end;
    }
}

async fn grants_of(tx: &mut Tx, auditor: &mut Auditor, above: &str, upto: &str) -> Result<(), AuditFailed> {
    let (mut pages, mut after) = (Pages::of("grant"), (above.to_owned(), LAST.to_owned()));
    loop {
        let read = tx.audit_grants((&after.0, &after.1), upto, pages.limit).await;
        let Some(rows) = pages.read::<_, AuditFailed>(&after.1, read)? else { continue };
        let more = pages.full(&rows);
        if let Some(last) = rows.last() {
            after = (last.tenant_id.to_string(), last.id.to_string());
        }
        for row in rows {
            auditor.movements.grant(facts::grant(row));
        }
        if !more {
            return Ok(());
        }
    }
}

async fn transfers_of(
    tx: &mut Tx,
    auditor: &mut Auditor,
    above: &str,
    upto: &str,
) -> Result<(), AuditFailed> {
    let (mut pages, mut after) = (Pages::of("transfer"), (above.to_owned(), LAST.to_owned()));
    loop {
        let read = tx.audit_transfers((&after.0, &after.1), upto, pages.limit).await;
        let Some(rows) = pages.read::<_, AuditFailed>(&after.1, read)? else { continue };
        let more = pages.full(&rows);
        if let Some(last) = rows.last() {
            let tenant = last.tenant_id.as_ref().map(ToString::to_string);
            after = (tenant.unwrap_or_default(), last.id.to_string());
        }
        for row in rows {
            auditor.movements.transfer(&facts::transfer(row))?;
        }
        if !more {
            return Ok(());
        }
    }
}

async fn transfers_of_nobody(tx: &mut Tx, auditor: &mut Auditor) -> Result<(), AuditFailed> {
    let (mut pages, mut after) = (Pages::of("transfer"), String::new());
    loop {
        let read = tx.audit_transfers_of_nobody(&after, pages.limit).await;
        let Some(rows) = pages.read::<_, AuditFailed>(&after, read)? else { continue };
        let more = pages.full(&rows);
        if let Some(last) = rows.last() {
            after = last.id.to_string();
        }
        for row in rows {
            auditor.movements.transfer(&facts::transfer(row))?;
        }
        if !more {
            return Ok(());
        }
    }
}

async fn reversals(tx: &mut Tx, auditor: &mut Auditor) -> Result<(), AuditFailed> {
    let (mut pages, mut after) = (Pages::of("reversal"), (String::new(), String::new()));
    loop {
        let read = tx.audit_reversals((&after.0, &after.1), pages.limit).await;
        let Some(rows) = pages.read::<_, AuditFailed>(&after.1, read)? else { continue };
        let more = pages.full(&rows);
        if let Some(last) = rows.last() {
            after = (last.original_id.to_string(), last.id.to_string());
        }
        for row in rows {
            let (original, reversal) = facts::reversal(row);
            auditor.reversals.reversal(&original, &reversal)?;
        }
        if !more {
            return Ok(());
        }
    }
}

/// Windows of accounts: their pending holds, then their entries.
async fn wallets(tx: &mut Tx, auditor: &mut Auditor) -> Result<(), AuditFailed> {
    let (mut pages, mut above) = (Pages::of_owners("account"), String::new());
    loop {
        let read = tx.audit_accounts(&above, pages.limit).await;
        let Some(rows) = pages.read::<_, AuditFailed>(&above, read)? else { continue };
        let end = rows.last().filter(|_| pages.full(&rows)).map(|row| row.id.to_string());
        for row in rows {
            auditor.wallets.account(facts::account(row))?;
        }
        let upto = end.as_deref().unwrap_or(LAST);
        holds_of(tx, auditor, &above, upto).await?;
        entries_of(tx, auditor, &above, upto).await?;
        auditor.wallets.end_of_accounts()?;
        let Some(end) = end else { return Ok(()) };
        above = end;
    }
}

async fn holds_of(tx: &mut Tx, auditor: &mut Auditor, above: &str, upto: &str) -> Result<(), AuditFailed> {
    let (mut pages, mut after) = (Pages::of("pending hold"), (above.to_owned(), LAST.to_owned()));
    loop {
        let read = tx.audit_holds((&after.0, &after.1), upto, pages.limit).await;
        let Some(rows) = pages.read::<_, AuditFailed>(&after.1, read)? else { continue };
        let more = pages.full(&rows);
        if let Some(last) = rows.last() {
            after = (last.account_id.to_string(), last.id.to_string());
        }
        for row in rows {
            auditor.wallets.hold(&facts::hold(row))?;
        }
        if !more {
            return Ok(());
        }
    }
}

async fn entries_of(tx: &mut Tx, auditor: &mut Auditor, above: &str, upto: &str) -> Result<(), AuditFailed> {
    let (mut pages, mut after) = (Pages::of("wallet entry"), (above.to_owned(), i64::MAX));
    loop {
        let read = tx.audit_entries((&after.0, after.1), upto, pages.limit).await;
        let place = format!("{} of {}", after.1, after.0);
        let Some(rows) = pages.read::<_, AuditFailed>(&place, read)? else { continue };
        let more = pages.full(&rows);
        if let Some(last) = rows.last() {
            after = (last.account_id.to_string(), last.seq);
        }
        for row in rows {
            auditor.wallets.entry(&facts::entry(row))?;
        }
        if !more {
            return Ok(());
        }
    }
}

/// Windows of segments: the evidence of their runs, then what they were charged.
async fn segments(tx: &mut Tx, auditor: &mut Auditor) -> Result<(), AuditFailed> {
    let (mut pages, mut above) = (Pages::of_owners("segment"), String::new());
    loop {
        let read = tx.audit_segments(&above, pages.limit).await;
        let Some(rows) = pages.read::<_, AuditFailed>(&above, read)? else { continue };
        let end = rows.last().filter(|_| pages.full(&rows)).map(|row| row.id.to_string());
        for row in rows {
            auditor.segments.segment(facts::segment(row))?;
        }
        let upto = end.as_deref().unwrap_or(LAST);
        evidence_of(tx, auditor, &above, upto).await?;
        usages_of(tx, auditor, &above, upto).await?;
        auditor.segments.end_of_segments()?;
        let Some(end) = end else { return Ok(()) };
        above = end;
    }
}

async fn evidence_of(tx: &mut Tx, auditor: &mut Auditor, above: &str, upto: &str) -> Result<(), AuditFailed> {
    let (mut pages, mut after) = (Pages::of("evidence"), (above.to_owned(), i64::MAX, LAST.to_owned()));
    loop {
        let read = tx.audit_evidence((&after.0, after.1, &after.2), upto, pages.limit).await;
        let place = format!("{} of {} for segment {}", after.1, after.2, after.0);
        let Some(rows) = pages.read::<_, AuditFailed>(&place, read)? else { continue };
        let more = pages.full(&rows);
        if let Some(last) = rows.last() {
            let seq = i64::try_from(last.seq.get()).unwrap_or(i64::MAX);
            after = (last.segment_id.to_string(), seq, last.host_id.to_string());
        }
        for row in rows {
            auditor.segments.evidence(&facts::evidence(row))?;
        }
        if !more {
            return Ok(());
        }
    }
}

async fn usages_of(tx: &mut Tx, auditor: &mut Auditor, above: &str, upto: &str) -> Result<(), AuditFailed> {
    let (mut pages, mut after) = (Pages::of("charge"), (above.to_owned(), LAST.to_owned()));
    loop {
        let read = tx.audit_usages((&after.0, &after.1), upto, pages.limit).await;
        let Some(rows) = pages.read::<_, AuditFailed>(&after.1, read)? else { continue };
        let more = pages.full(&rows);
        if let Some(last) = rows.last() {
            after = (last.segment_id.to_string(), last.id.to_string());
        }
        for row in rows {
            auditor.segments.usage(&facts::usage(row))?;
        }
        if !more {
            return Ok(());
        }
    }
}

fn card(row: &AuditSpanRow) -> String {
    row.meter_gpu_uuid.as_ref().map(GpuUuid::to_string).unwrap_or_default()
}

/// All segments of cards by card, then all by instance and SKU.
async fn spans(tx: &mut Tx, auditor: &mut Auditor) -> Result<(), AuditFailed> {
    let (mut pages, mut after) = (Pages::of("segment of a card"), (String::new(), 0, String::new()));
    loop {
        let read = tx.audit_spans_of_cards((&after.0, after.1, &after.2), pages.limit).await;
        let Some(rows) = pages.read::<_, AuditFailed>(&after.2, read)? else { continue };
        let more = pages.full(&rows);
        if let Some(last) = rows.last() {
            after = (card(last), last.started_at.as_micros(), last.id.to_string());
        }
        for row in rows {
            auditor.overlaps.span(facts::span(card(&row), row))?;
        }
        if !more {
            break;
        }
    }
    auditor.overlaps.next_kind();
    let mut pages = Pages::of("segment of an instance");
    let mut after = (String::new(), String::new(), 0, String::new());
    loop {
        let from = (&*after.0, &*after.1, after.2, &*after.3);
        let read = tx.audit_spans_of_instances(from, pages.limit).await;
        let Some(rows) = pages.read::<_, AuditFailed>(&after.3, read)? else { continue };
        let more = pages.full(&rows);
        if let Some(last) = rows.last() {
            let (instance, sku) = (last.instance_id.to_string(), last.sku.to_string());
            after = (instance, sku, last.started_at.as_micros(), last.id.to_string());
        }
        for row in rows {
            auditor.overlaps.span(facts::span(format!("{} {}", row.instance_id, row.sku), row))?;
        }
        if !more {
            return Ok(());
        }
    }
}

/// Rows that no pass came by: the entry of a transfer that is not there, if that is it.
async fn stray(tx: &mut Tx, found: Difference) -> Result<Difference, StoreError> {
    Ok(match tx.audit_stray_entry().await? {
        Some(entry) => {
            let row = format!("entry of {} on account {}", entry.transfer_id, entry.account_id);
            Difference::new(Rule::EntriesBalance, row, "transfer", "one that is there", entry.transfer_id)
        }
        None => found,
    })
}
