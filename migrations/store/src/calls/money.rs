//! The ledger, grants, holds, segments and evidence.

use tarn_billing::money::Micros;
use tarn_protocol::ids::{
    AccountId, GpuUuid, GrantId, HoldId, InstanceId, OfferId, SegmentId, TenantId, TransferId,
};
use tarn_protocol::units::{BootId, Generation, MonoMillis, Timestamp};
use tarn_rows::audit::{
    AccountSumRow, AuditAccountRow, AuditCountsRow, AuditEntryRow, AuditEvidenceRow, AuditReversalRow,
    AuditSegmentRow, AuditSpanRow, AuditTransferRow, AuditUsageRow,
};
use tarn_rows::ledger::{AccountRow, AuditRow, EntryRow, LedgerLineRow, Posting, TransferRow};
use tarn_rows::segments::{ChargeFilter, MeterEventRow, SegmentRow, WaivedRow};
use tarn_rows::wallet::{BalanceRow, GrantRow, HoldRow, HoldState, WalletRow};
use tarn_rows::{Page, TenantScope};

use super::calls;

calls! { ledger {
    ensure_account(account: &AccountRow) -> ();
    post_transfer(transfer: &TransferRow) -> Posting;
    post_charges(charges: &[TransferRow]) -> bool;
    transfer(id: &TransferId) -> Option<TransferRow>;
    transfers(scope: &TenantScope, page: Page<'_, TransferId>) -> Vec<TransferRow>;
    transfers_of_segment(scope: &TenantScope, segment: &SegmentId) -> Vec<TransferRow>;
    usage_between(scope: &TenantScope, segment: &SegmentId, between: (&TransferId, &TransferId)) -> Vec<TransferRow>;
    usage_above(scope: &TenantScope, segment: &SegmentId, id: &TransferId) -> Option<TransferRow>;
    usage_below(scope: &TenantScope, segment: &SegmentId, id: &TransferId) -> Option<TransferRow>;
    ledger_lines(scope: &TenantScope, page: Page<'_, TransferId>) -> Vec<LedgerLineRow>;
    entries_of_transfer(id: &TransferId) -> Vec<EntryRow>;
    balances(scope: &TenantScope) -> Vec<BalanceRow>;
    balance(scope: &TenantScope, account: &AccountId) -> Option<BalanceRow>;
    lock_wallets(scope: &TenantScope) -> ();
    ledger_audit() -> AuditRow;
} }

calls! { wallet {
    wallet(scope: &TenantScope) -> WalletRow;
} }

calls! { grants {
    insert_grant(scope: &TenantScope, grant: &GrantRow) -> bool;
    grant(scope: &TenantScope, id: &GrantId) -> Option<GrantRow>;
    spendable_grants(scope: &TenantScope, now: Timestamp) -> Vec<GrantRow>;
    grants(scope: &TenantScope) -> Vec<GrantRow>;
    grants_left(scope: &TenantScope) -> Vec<GrantRow>;
    grants_expired(now: Timestamp) -> Vec<GrantRow>;
    set_grant_remaining(scope: &TenantScope, id: &GrantId, before: Micros, after: Micros) -> bool;
} }

calls! { holds {
    place_hold(scope: &TenantScope, hold: &HoldRow) -> bool;
    resolve_hold(scope: &TenantScope, id: &HoldId, state: HoldState, now: Timestamp) -> Option<HoldRow>;
    expire_holds(scope: &TenantScope, now: Timestamp) -> u64;
    holds_pending(scope: &TenantScope) -> Vec<HoldRow>;
    holds_expired(now: Timestamp) -> Vec<HoldRow>;
} }

calls! { segments {
    insert_segment(scope: &TenantScope, segment: &SegmentRow) -> ();
    update_segment(scope: &TenantScope, segment: &SegmentRow) -> bool;
    segment(scope: &TenantScope, id: &SegmentId) -> Option<SegmentRow>;
    segments(scope: &TenantScope, page: Page<'_, SegmentId>) -> Vec<SegmentRow>;
    charged_segments(scope: &TenantScope, filter: &ChargeFilter, page: Page<'_, SegmentId>) -> Vec<SegmentRow>;
    uninvoiced_segments(scope: &TenantScope, before: Timestamp, page: Page<'_, SegmentId>) -> Vec<SegmentRow>;
    spent_on_instance(scope: &TenantScope, instance: &InstanceId) -> Micros;
    segments_of_instance(scope: &TenantScope, instance: &InstanceId) -> Vec<SegmentRow>;
    open_segment_of_instance(scope: &TenantScope, instance: &InstanceId) -> Option<SegmentRow>;
    open_segments_of_tenant(scope: &TenantScope) -> Vec<SegmentRow>;
    segments_of_run(instance: &InstanceId, generation: Generation) -> Vec<SegmentRow>;
    open_segment_of_gpu(gpu: &GpuUuid) -> Option<SegmentRow>;
    open_segments(page: Page<'_, SegmentId>) -> Vec<SegmentRow>;
    open_segments_of_sku(sku: &OfferId, page: Page<'_, SegmentId>) -> Vec<SegmentRow>;
    segments_exhausted(now: Timestamp, limit: u32) -> Vec<SegmentRow>;
    next_exhaustion() -> Option<Timestamp>;
    segments_that_cost(scope: &TenantScope, since: Timestamp) -> Vec<SegmentRow>;
    segments_since(scope: &TenantScope, since: Timestamp) -> Vec<SegmentRow>;
    waived_seconds(scope: &TenantScope) -> Vec<WaivedRow>;
    put_waived_seconds(scope: &TenantScope, waived: &WaivedRow, now: Timestamp) -> ();
    tenants_that_cost(since: Timestamp) -> Vec<TenantId>;
} }

calls! { evidence {
    insert_meter_event(event: &MeterEventRow) -> bool;
    meter_events_between(run: (&InstanceId, Generation), boot: &BootId, from: MonoMillis, to: MonoMillis) -> Vec<MeterEventRow>;
    meter_events_excusing(instance: &InstanceId, generation: Generation) -> Vec<MeterEventRow>;
    meter_events_of_segment(segment: &SegmentId) -> Vec<MeterEventRow>;
} }

calls! { audit {
    audit_counts() -> AuditCountsRow;
    tenant_above(after: &str, skip: u32) -> Option<String>;
    audit_grants(after: (&str, &str), upto: &str, limit: u32) -> Vec<GrantRow>;
    audit_transfers(after: (&str, &str), upto: &str, limit: u32) -> Vec<AuditTransferRow>;
    audit_transfers_of_nobody(after: &str, limit: u32) -> Vec<AuditTransferRow>;
    audit_reversals(after: (&str, &str), limit: u32) -> Vec<AuditReversalRow>;
    audit_stray_entry() -> Option<EntryRow>;
    audit_accounts(after: &str, limit: u32) -> Vec<AuditAccountRow>;
    audit_holds(after: (&str, &str), upto: &str, limit: u32) -> Vec<HoldRow>;
    audit_entries(after: (&str, i64), upto: &str, limit: u32) -> Vec<AuditEntryRow>;
    audit_segments(after: &str, limit: u32) -> Vec<AuditSegmentRow>;
    audit_evidence(after: (&str, i64, &str), upto: &str, limit: u32) -> Vec<AuditEvidenceRow>;
    audit_usages(after: (&str, &str), upto: &str, limit: u32) -> Vec<AuditUsageRow>;
    audit_spans_of_cards(after: (&str, i64, &str), limit: u32) -> Vec<AuditSpanRow>;
    audit_spans_of_instances(after: (&str, &str, i64, &str), limit: u32) -> Vec<AuditSpanRow>;
} }

calls! { journal {
    journal_transfers(after: &str, until: Timestamp, limit: u32) -> Vec<TransferRow>;
    journal_wallet_sums(after: &str, upto: &str, until: Timestamp) -> Vec<AccountSumRow>;
    journal_other_sums(until: Timestamp) -> Vec<AccountSumRow>;
} }
