//! Rows as an audit streams them: what is stored, beside what it must agree with.

use tarn_billing::account::AccountKind;
use tarn_billing::coverage::Coverage;
use tarn_billing::money::{Currency, Micros};
use tarn_billing::price::PriceVersion;
use tarn_billing::rate::{Rate, Seconds};
use tarn_billing::segment::CloseReason;
use tarn_billing::transfer::TransferKind;
use tarn_protocol::ids::{
    AccountId, GpuUuid, GrantId, HostId, InstanceId, OfferId, SegmentId, TenantId, TransferId,
};
use tarn_protocol::units::{BootId, Generation, MonoMillis, Sequence, Timestamp};

use crate::stored::{Json, rows};

rows! {
    /// How many rows there are.
    AuditCountsRow / AuditCountsRaw {
        accounts: u64,
        balances: u64,
        transfers: u64,
        reversals: u64,
        entries: u64,
        grants: u64,
        holds_pending: u64,
        segments: u64,
        /// Among them, of disks.
        disks: u64,
    }
    /// A transfer with the entries of its two accounts.
    AuditTransferRow / AuditTransferRaw {
        id: TransferId,
        kind: TransferKind,
        debit_account_id: AccountId,
        credit_account_id: AccountId,
        amount_micros: Micros,
        tenant_id: Option<TenantId>,
        segment_id: Option<SegmentId>,
        grant_id: Option<GrantId>,
        reverses: Option<TransferId>,
        created_at: Timestamp,
        /// All entries that name it.
        entries: u64,
        debit_micros: Option<Micros>,
        debit_seq: Option<i64>,
        debit_balance_micros: Option<Micros>,
        credit_micros: Option<Micros>,
        credit_seq: Option<i64>,
        credit_balance_micros: Option<Micros>,
    }
    /// A reversal with its original.
    AuditReversalRow / AuditReversalRaw {
        id: TransferId,
        kind: TransferKind,
        debit_account_id: AccountId,
        credit_account_id: AccountId,
        amount_micros: Micros,
        segment_id: Option<SegmentId>,
        grant_id: Option<GrantId>,
        /// What was taken back of it in turn.
        undone_micros: Micros,
        original_id: TransferId,
        original_kind: TransferKind,
        original_debit_account_id: AccountId,
        original_credit_account_id: AccountId,
        original_amount_micros: Micros,
        original_segment_id: Option<SegmentId>,
        original_grant_id: Option<GrantId>,
    }
    /// An account, with its balance if it has one.
    AuditAccountRow / AuditAccountRaw {
        id: AccountId,
        kind: AccountKind,
        tenant_id: Option<TenantId>,
        currency: Currency,
        posted_micros: Option<Micros>,
        held_micros: Option<Micros>,
        version: Option<i64>,
    }
    /// An entry with a sequence.
    AuditEntryRow / AuditEntryRaw {
        account_id: AccountId,
        seq: i64,
        amount_micros: Micros,
        balance_after_micros: Option<Micros>,
    }
    AuditSegmentRow / AuditSegmentRaw {
        id: SegmentId,
        tenant_id: TenantId,
        instance_id: InstanceId,
        generation: Generation,
        sku: OfferId,
        /// Of a card.
        meter_gpu_uuid: Option<GpuUuid>,
        /// Of a disk.
        gib: Option<u32>,
        price_version: PriceVersion,
        micros_per_hour: Rate,
        boot_id: BootId,
        anchor_mono_ms: MonoMillis,
        started_at: Timestamp,
        ended_at: Option<Timestamp>,
        close_reason: Option<CloseReason>,
        covered: Json<Coverage>,
        settled_seconds: Seconds,
        settled_micros: Micros,
        updated_at: Timestamp,
        /// Where its run was leased.
        lease_host_id: Option<HostId>,
        /// Whose instance it is.
        instance_tenant_id: Option<TenantId>,
        /// A price change ended a segment of the same run where this one starts.
        continues: bool,
    }
    /// Evidence beside a segment of its run.
    AuditEvidenceRow / AuditEvidenceRaw {
        segment_id: SegmentId,
        host_id: HostId,
        seq: Sequence,
        from_mono_ms: MonoMillis,
        to_mono_ms: MonoMillis,
        excused_ms: u64,
        received_at: Timestamp,
    }
    /// A transfer that charged a segment.
    AuditUsageRow / AuditUsageRaw {
        id: TransferId,
        segment_id: SegmentId,
        tenant_id: Option<TenantId>,
        grant_id: Option<GrantId>,
        amount_micros: Micros,
    }
    /// A segment as an interval.
    AuditSpanRow / AuditSpanRaw {
        id: SegmentId,
        /// Of a card.
        meter_gpu_uuid: Option<GpuUuid>,
        instance_id: InstanceId,
        sku: OfferId,
        boot_id: BootId,
        started_at: Timestamp,
        ended_at: Option<Timestamp>,
        covered: Json<Coverage>,
    }
    /// What the entries of an account sum to.
    AccountSumRow / AccountSumRaw {
        account_id: AccountId,
        sum_micros: Micros,
    }
}
