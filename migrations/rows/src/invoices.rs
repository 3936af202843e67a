//! Invoices, their lines, and who is on them.

use tarn_billing::grant::GrantKind;
use tarn_billing::invoice::{Invoice, InvoiceKind, Party};
use tarn_billing::money::Micros;
use tarn_billing::rate::Seconds;
use tarn_protocol::ids::{InstanceId, InvoiceId, SegmentId, TenantId, TransferId};
use tarn_protocol::units::Timestamp;

use crate::stored::{Json, rows};

rows! {
    BillingDetailsRow / BillingDetailsRaw {
        tenant_id: TenantId,
        party: Json<Party>,
        updated_at: Timestamp,
    }
    InvoiceRow / InvoiceRaw {
        id: InvoiceId,
        tenant_id: TenantId,
        kind: InvoiceKind,
        seller: String,
        year: i64,
        number: i64,
        /// Of a credit note.
        corrects: Option<InvoiceId>,
        period_from: Timestamp,
        period_to: Timestamp,
        total_micros: Micros,
        document: Json<Invoice>,
        issued_at: Timestamp,
    }
    /// An invoice as a list shows it.
    InvoiceHeadRow / InvoiceHeadRaw {
        id: InvoiceId,
        kind: InvoiceKind,
        seller: String,
        year: i64,
        number: i64,
        corrects: Option<InvoiceId>,
        period_from: Timestamp,
        period_to: Timestamp,
        total_micros: Micros,
        issued_at: Timestamp,
    }
    /// Billed seconds `[from_s, to_s)` of a segment on an invoice.
    InvoiceLineRow / InvoiceLineRaw {
        invoice_id: InvoiceId,
        place: u32,
        segment_id: SegmentId,
        from_s: Seconds,
        to_s: Seconds,
        amount_micros: Micros,
    }
    /// A reversal on a credit note.
    CreditLineRow / CreditLineRaw {
        transfer_id: TransferId,
        invoice_id: InvoiceId,
        place: u32,
        amount_micros: Micros,
    }
    /// What buckets of one kind paid.
    PaidRow / PaidRaw {
        kind: GrantKind,
        amount_micros: Micros,
    }
    InvoiceRunRow / InvoiceRunRaw {
        period_to: Timestamp,
        /// Every tenant up to this id is done; at first the empty text.
        after_tenant: String,
        finished_at: Option<Timestamp>,
    }
    InstanceLabelRow / InstanceLabelRaw {
        id: InstanceId,
        label: String,
    }
}
