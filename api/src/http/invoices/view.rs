//! An invoice as its tenant reads it.

use serde::Serialize;
use tarn_billing::grant::GrantKind;
use tarn_billing::invoice::{Corrected, CreditLine, Invoice, InvoiceKind, Line, Paid, UsageLine};
use tarn_billing::meter::Item;
use tarn_protocol::ids::{GpuUuid, InstanceId, InvoiceId, OfferId, SegmentId, TransferId};
use tarn_rows::invoices::InvoiceHeadRow;
use utoipa::ToSchema;

use crate::http::amount::Amount;
use crate::http::billing_details::PartyDocument;
use crate::http::instant::Instant;
use crate::http::table::Table;

/// An invoice in a list.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct InvoiceSummary {
    #[schema(value_type = String, example = "inv_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: InvoiceId,
    #[schema(example = "TARN-2027-000042")]
    number: String,
    /// `invoice` or `credit_note`.
    #[schema(example = "invoice")]
    kind: &'static str,
    /// Of a credit note: the invoice it corrects.
    #[schema(value_type = Option<String>)]
    corrects: Option<InvoiceId>,
    period_from: Instant,
    period_to: Instant,
    issued_at: Instant,
    /// Exact; below zero on a credit note.
    total: Amount,
}

impl From<InvoiceHeadRow> for InvoiceSummary {
    fn from(row: InvoiceHeadRow) -> Self {
        let InvoiceHeadRow { seller, year, number, .. } = row;
        Self {
            id: row.id,
            number: tarn_billing::invoice::InvoiceNumber { seller, year, number }.to_string(),
            kind: row.kind.as_str(),
            corrects: row.corrects,
            period_from: row.period_from.into(),
            period_to: row.period_to.into(),
            issued_at: row.issued_at.into(),
            total: row.total_micros.into(),
        }
    }
}

/// All that an invoice says. It never changes: corrections are credit notes.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct InvoiceDocument {
    #[schema(value_type = String, example = "inv_01jf3z6v5w9x8y7z6a5b4c3d2e")]
    id: InvoiceId,
    /// Without a gap for each seller and year.
    #[schema(example = "TARN-2027-000042")]
    number: String,
    /// `invoice` or `credit_note`.
    #[schema(example = "invoice")]
    kind: &'static str,
    corrects: Option<CorrectedDocument>,
    seller: PartyDocument,
    buyer: PartyDocument,
    period_from: Instant,
    period_to: Instant,
    issued_at: Instant,
    lines: Vec<LineDocument>,
    /// Exact: the sum of the lines.
    total: Amount,
    /// The total rounded to fen, as it is printed.
    #[schema(example = "9.60")]
    total_printed: String,
    /// Which buckets of the wallet paid it, or got it back; sums to `total`. Nothing is due: wallets are prepaid.
    paid: Vec<PaidDocument>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CorrectedDocument {
    #[schema(value_type = String)]
    id: InvoiceId,
    number: String,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct PaidDocument {
    /// `trial`, `promo`, `sla` or `cash`.
    #[schema(example = "trial")]
    from: &'static str,
    amount: Amount,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LineDocument {
    Usage(UsageLineDocument),
    Credit(CreditLineDocument),
}

/// Billed seconds `[from_second, to_second)` of one segment: `floor(rate × to / 3600) - floor(rate × from / 3600)`.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct UsageLineDocument {
    /// The line of `/v1/charges`.
    #[schema(value_type = String)]
    segment_id: SegmentId,
    #[schema(value_type = String)]
    instance_id: InstanceId,
    /// As it was when this was issued.
    instance_label: String,
    /// `gpu` or `disk`.
    #[schema(value_type = String)]
    item: Item,
    #[schema(value_type = String, example = "pool-96")]
    sku: OfferId,
    #[schema(value_type = Option<String>)]
    primary_gpu_uuid: Option<GpuUuid>,
    size_gib: Option<u32>,
    price_version: i64,
    rate_per_hour: Amount,
    started_at: Instant,
    /// Absent if it ran on.
    ended_at: Option<Instant>,
    from_second: i64,
    to_second: i64,
    seconds: i64,
    amount: Amount,
    paid: Vec<PaidDocument>,
}

/// A charge that was given back.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CreditLineDocument {
    /// The movement of `/v1/ledger`.
    #[schema(value_type = String)]
    transfer_id: TransferId,
    #[schema(value_type = String)]
    segment_id: SegmentId,
    #[schema(value_type = String)]
    instance_id: InstanceId,
    instance_label: String,
    #[schema(value_type = String)]
    item: Item,
    #[schema(value_type = String)]
    sku: OfferId,
    reason: String,
    at: Instant,
    /// Below zero.
    amount: Amount,
    paid: Vec<PaidDocument>,
}

fn paid(parts: Vec<Paid>) -> Vec<PaidDocument> {
    let document = |Paid { from, amount }: Paid| PaidDocument { from: from.as_str(), amount: amount.into() };
    parts.into_iter().map(document).collect()
}

impl From<Invoice> for InvoiceDocument {
    fn from(invoice: Invoice) -> Self {
        let corrected =
            |Corrected { id, number }: Corrected| CorrectedDocument { id, number: number.to_string() };
        Self {
            id: invoice.id,
            number: invoice.number.to_string(),
            kind: invoice.kind.as_str(),
            corrects: invoice.corrects.map(corrected),
            seller: invoice.seller.into(),
            buyer: invoice.buyer.into(),
            period_from: invoice.period_from.into(),
            period_to: invoice.period_to.into(),
            issued_at: invoice.issued_at.into(),
            lines: invoice.lines.into_iter().map(LineDocument::from).collect(),
            total: invoice.total.into(),
            total_printed: tarn_billing::invoice::fen(invoice.total),
            paid: paid(invoice.paid),
        }
    }
}

impl From<Line> for LineDocument {
    fn from(line: Line) -> Self {
        match line {
            Line::Usage(line) => Self::Usage(line.into()),
            Line::Credit(line) => Self::Credit(line.into()),
        }
    }
}

impl From<UsageLine> for UsageLineDocument {
    fn from(line: UsageLine) -> Self {
        let seconds = line.seconds().get();
        Self {
            segment_id: line.segment_id,
            instance_id: line.instance_id,
            instance_label: line.label,
            item: line.item,
            sku: line.sku,
            primary_gpu_uuid: line.card,
            size_gib: line.gib,
            price_version: line.price_version.get(),
            rate_per_hour: line.rate.hourly().into(),
            started_at: line.opened_at.into(),
            ended_at: line.ended_at.map(Instant),
            from_second: line.from.get(),
            to_second: line.to.get(),
            seconds,
            amount: line.amount.into(),
            paid: paid(line.paid),
        }
    }
}

impl From<CreditLine> for CreditLineDocument {
    fn from(line: CreditLine) -> Self {
        Self {
            transfer_id: line.transfer_id,
            segment_id: line.segment_id,
            instance_id: line.instance_id,
            instance_label: line.label,
            item: line.item,
            sku: line.sku,
            reason: line.reason,
            at: line.at.into(),
            amount: line.amount.into(),
            paid: paid(line.paid),
        }
    }
}

const HEADING: [&str; 19] = [
    "number",
    "type",
    "item",
    "sku",
    "instance_id",
    "label",
    "card",
    "size_gib",
    "price_version",
    "rate_per_hour",
    "started_at",
    "ended_at",
    "from_second",
    "to_second",
    "seconds",
    "amount",
    "currency",
    "paid_from",
    "detail",
];

/// Line by line, exact, with the total as the last row.
pub fn table(invoice: &Invoice) -> Table {
    let mut table = Table::new(&HEADING);
    let number = invoice.number.to_string();
    for line in &invoice.lines {
        table.row(match line {
            Line::Usage(line) => usage(&number, invoice, line),
            Line::Credit(line) => credit(&number, invoice, line),
        });
    }
    let mut total = blank(&number, "total", invoice);
    total[15] = invoice.total.to_string();
    total[17] = buckets(&invoice.paid);
    total[18] = match invoice.kind {
        InvoiceKind::Invoice => String::new(),
        InvoiceKind::CreditNote => invoice
            .corrects
            .as_ref()
            .map(|corrected| format!("corrects {}", corrected.number))
            .unwrap_or_default(),
    };
    table.row(total);
    table
}

fn blank(number: &str, kind: &str, invoice: &Invoice) -> [String; 19] {
    let mut cells: [String; 19] = std::array::from_fn(|_| String::new());
    number.clone_into(&mut cells[0]);
    kind.clone_into(&mut cells[1]);
    cells[16] = invoice.currency.to_string();
    cells
}

/// `trial 8.00; cash 1.60`
fn buckets(parts: &[Paid]) -> String {
    let part = |paid: &Paid| format!("{} {}", GrantKind::as_str(paid.from), paid.amount);
    parts.iter().map(part).collect::<Vec<_>>().join("; ")
}

fn usage(number: &str, invoice: &Invoice, line: &UsageLine) -> [String; 19] {
    let mut cells = blank(number, "usage", invoice);
    cells[2] = line.item.to_string();
    cells[3] = line.sku.to_string();
    cells[4] = line.instance_id.to_string();
    cells[5].clone_from(&line.label);
    cells[6] = line.card.as_ref().map(GpuUuid::to_string).unwrap_or_default();
    cells[7] = line.gib.map(|gib| gib.to_string()).unwrap_or_default();
    cells[8] = line.price_version.to_string();
    cells[9] = line.rate.hourly().to_string();
    cells[10] = Instant(line.opened_at).to_string();
    cells[11] = line.ended_at.map(|at| Instant(at).to_string()).unwrap_or_default();
    cells[12] = line.from.get().to_string();
    cells[13] = line.to.get().to_string();
    cells[14] = line.seconds().get().to_string();
    cells[15] = line.amount.to_string();
    cells[17] = buckets(&line.paid);
    cells[18] = line.segment_id.to_string();
    cells
}

fn credit(number: &str, invoice: &Invoice, line: &CreditLine) -> [String; 19] {
    let mut cells = blank(number, "credit", invoice);
    cells[2] = line.item.to_string();
    cells[3] = line.sku.to_string();
    cells[4] = line.instance_id.to_string();
    cells[5].clone_from(&line.label);
    cells[10] = Instant(line.at).to_string();
    cells[15] = line.amount.to_string();
    cells[17] = buckets(&line.paid);
    cells[18] = format!("{}: {}", line.transfer_id, line.reason);
    cells
}
