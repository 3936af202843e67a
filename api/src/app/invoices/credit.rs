//! Credit notes: a usage charge that is given back after it was invoiced is said on a paper of its own.

use std::collections::HashMap;

use tarn_billing::grant::GrantKind;
use tarn_billing::invoice::{Corrected, CreditLine, Draft, Invoice, Line, Paid, UsageLine};
use tarn_billing::money::OutOfRange;
use tarn_protocol::ids::{InvoiceId, TenantId};
use tarn_rows::TenantScope;
use tarn_rows::invoices::CreditLineRow;
use tarn_rows::ledger::TransferRow;
use tarn_store::{StoreError, Tx};

use super::issue::{self, IssueError};
use crate::app::act::Act;
use crate::app::metering::stored::corrupt;
use crate::config::Seller;

/// Reversals looked at in one tick.
pub const REVERSALS_MAX: u32 = 200;

/// Issues a credit note for each invoice some of whose charges were given back; how many there were.
pub async fn issue_due(tx: &mut Tx, act: &Act, seller: &Seller) -> Result<u32, IssueError> {
    let mut notes: HashMap<(TenantId, InvoiceId), Vec<CreditLine>> = HashMap::new();
    let mut order = Vec::new();
    for reversal in tx.reversals_to_credit(REVERSALS_MAX).await? {
        let Some(tenant_id) = reversal.tenant_id.clone() else { continue };
        let scope = TenantScope::proven(tenant_id.clone());
        let Some((invoice_id, line)) = credited(tx, &scope, &reversal).await? else { continue };
        let key = (tenant_id, invoice_id);
        if !notes.contains_key(&key) {
            order.push(key.clone());
        }
        notes.entry(key).or_default().push(line);
    }
    let mut issued = 0;
    for key in order {
        let (Some(lines), (tenant_id, invoice_id)) = (notes.remove(&key), key) else { continue };
        note(tx, act, seller, &TenantScope::proven(tenant_id), &invoice_id, lines).await?;
        issued += 1;
    }
    Ok(issued)
}

/// The invoice that has the charge which `reversal` gives back, and the line that says so. `None` while that charge is on none: it
/// will be, and the credit follows it.
async fn credited(
    tx: &mut Tx,
    scope: &TenantScope,
    reversal: &TransferRow,
) -> Result<Option<(InvoiceId, CreditLine)>, IssueError> {
    let (Some(segment_id), Some(original)) = (&reversal.segment_id, &reversal.reverses) else {
        return Ok(None);
    };
    let offset = tx.charged_before(scope, segment_id, original).await?;
    for row in tx.invoice_lines_of_segment(scope, segment_id).await? {
        let Some(invoice) = tx.invoice(scope, &row.invoice_id).await? else { continue };
        let Some(usage) = usage_of(&invoice.document.0, row.place) else { continue };
        let (from, to) = usage.span();
        if from <= offset && offset < to {
            let line = credit_line(tx, scope, reversal, usage).await?;
            return Ok(Some((row.invoice_id, line)));
        }
    }
    Ok(None)
}

fn usage_of(invoice: &Invoice, place: u32) -> Option<&UsageLine> {
    match invoice.lines.get(place as usize)? {
        Line::Usage(line) => Some(line),
        Line::Credit(_) => None,
    }
}

async fn credit_line(
    tx: &mut Tx,
    scope: &TenantScope,
    reversal: &TransferRow,
    usage: &UsageLine,
) -> Result<CreditLine, StoreError> {
    let grant = match &reversal.grant_id {
        Some(id) => tx.grant(scope, id).await?,
        None => None,
    };
    let amount = reversal.amount_micros.checked_neg().map_err(|error: OutOfRange| corrupt(error))?;
    Ok(CreditLine {
        transfer_id: reversal.id.clone(),
        segment_id: usage.segment_id.clone(),
        instance_id: usage.instance_id.clone(),
        label: usage.label.clone(),
        item: usage.item,
        sku: usage.sku.clone(),
        reason: reversal.memo.clone(),
        at: reversal.created_at,
        amount,
        paid: vec![Paid { from: grant.map_or(GrantKind::Cash, |grant| grant.kind), amount }],
    })
}

async fn note(
    tx: &mut Tx,
    act: &Act,
    seller: &Seller,
    scope: &TenantScope,
    invoice_id: &InvoiceId,
    lines: Vec<CreditLine>,
) -> Result<(), IssueError> {
    let Some(invoice) = tx.invoice(scope, invoice_id).await? else { return Ok(()) };
    let original = invoice.document.0;
    let draft = Draft {
        id: InvoiceId::new(act.now, act.bits()),
        tenant_id: original.tenant_id.clone(),
        corrects: Some(Corrected { id: original.id.clone(), number: original.number.clone() }),
        seller: seller.party.clone(),
        // To whom the invoice went, whatever the tenant is called now.
        buyer: original.buyer.clone(),
        period_from: original.period_from,
        period_to: original.period_to,
        issued_at: act.now,
        lines: lines.iter().cloned().map(Line::Credit).collect(),
    };
    let note = issue::number(tx, seller, draft).await?;
    issue::store(tx, scope, &note).await?;
    for (place, line) in (0..).zip(lines) {
        let row = CreditLineRow {
            transfer_id: line.transfer_id,
            invoice_id: note.id.clone(),
            place,
            amount_micros: line.amount,
        };
        tx.insert_credit_line(&row).await?;
    }
    Ok(())
}
