//! Invoices, and the segments of disks.

use tarn_billing::money::Micros;
use tarn_billing::rate::Seconds;
use tarn_protocol::ids::{InstanceId, InvoiceId, OfferId, SegmentId, TenantId, TransferId};
use tarn_protocol::units::Timestamp;
use tarn_rows::invoices::{
    BillingDetailsRow, CreditLineRow, InstanceLabelRow, InvoiceHeadRow, InvoiceLineRow, InvoiceRow,
    InvoiceRunRow, PaidRow,
};
use tarn_rows::ledger::TransferRow;
use tarn_rows::segments::ChargeFilter;
use tarn_rows::storage::StorageSegmentRow;
use tarn_rows::{Page, TenantScope};

use super::calls;

calls! { invoices {
    next_invoice_number(seller: &str, year: i64) -> i64;
    insert_invoice(scope: &TenantScope, invoice: &InvoiceRow) -> ();
    insert_invoice_line(line: &InvoiceLineRow) -> ();
    insert_credit_line(line: &CreditLineRow) -> ();
    invoice(scope: &TenantScope, id: &InvoiceId) -> Option<InvoiceRow>;
    invoices(scope: &TenantScope, page: Page<'_, InvoiceId>) -> Vec<InvoiceHeadRow>;
    last_invoice(scope: &TenantScope) -> Option<InvoiceHeadRow>;
    invoiced_seconds(scope: &TenantScope, segment: &SegmentId) -> Seconds;
    invoice_lines_of_segment(scope: &TenantScope, segment: &SegmentId) -> Vec<InvoiceLineRow>;
    paid_between(scope: &TenantScope, segment: &SegmentId, from: Micros, to: Micros) -> Vec<PaidRow>;
    charged_before(scope: &TenantScope, segment: &SegmentId, transfer: &TransferId) -> Micros;
    reversals_to_credit(limit: u32) -> Vec<TransferRow>;
    newest_invoice_run() -> Option<InvoiceRunRow>;
    put_invoice_run(run: &InvoiceRunRow) -> ();
    billing_details(scope: &TenantScope) -> Option<BillingDetailsRow>;
    put_billing_details(scope: &TenantScope, details: &BillingDetailsRow) -> ();
    instance_labels(scope: &TenantScope, from: Timestamp, to: Timestamp) -> Vec<InstanceLabelRow>;
} }

calls! { storage {
    insert_storage_segment(scope: &TenantScope, segment: &StorageSegmentRow) -> ();
    update_storage_segment(scope: &TenantScope, segment: &StorageSegmentRow) -> bool;
    storage_segment(scope: &TenantScope, id: &SegmentId) -> Option<StorageSegmentRow>;
    open_storage_segments_of_instance(scope: &TenantScope, instance: &InstanceId) -> Vec<StorageSegmentRow>;
    newest_storage_segment_of_instance(scope: &TenantScope, instance: &InstanceId) -> Option<StorageSegmentRow>;
    open_storage_of_sku(sku: &OfferId, page: Page<'_, SegmentId>) -> Vec<StorageSegmentRow>;
    charged_storage(scope: &TenantScope, filter: &ChargeFilter, page: Page<'_, SegmentId>) -> Vec<StorageSegmentRow>;
    uninvoiced_storage(scope: &TenantScope, before: Timestamp, page: Page<'_, SegmentId>) -> Vec<StorageSegmentRow>;
    storage_that_costs(scope: &TenantScope, since: Timestamp) -> Vec<StorageSegmentRow>;
    tenants_with_disks_that_cost(since: Timestamp) -> Vec<TenantId>;
    tenants_with_exhausted_disks(now: Timestamp, limit: u32) -> Vec<TenantId>;
    unpaid_disks(scope: &TenantScope) -> Vec<InstanceId>;
    disks_unpaid_since(before: Timestamp, limit: u32) -> Vec<InstanceId>;
} }
