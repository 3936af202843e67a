//! What reports read of the ledger and of leases.

use tarn_billing::account::AccountKind;
use tarn_billing::money::Micros;
use tarn_billing::transfer::TransferKind;
use tarn_protocol::ids::{
    GpuUuid, GrantId, HostId, InstanceId, LeaseId, OfferId, SegmentId, TenantId, TransferId,
};
use tarn_protocol::units::{Generation, Timestamp};

use crate::stored::rows;

rows! {
    /// One entry on a tenant's account, with what it was for.
    StatementEntryRow / StatementEntryRaw {
        transfer_id: TransferId,
        account_kind: AccountKind,
        transfer_kind: TransferKind,
        /// Negative when it left the account.
        amount_micros: Micros,
        segment_id: Option<SegmentId>,
        /// Of the segment.
        instance_id: Option<InstanceId>,
        grant_id: Option<GrantId>,
        reverses: Option<TransferId>,
        memo: String,
        created_at: Timestamp,
    }
    /// What came to an account and went from it.
    TurnoverRow / TurnoverRaw {
        entries: u64,
        in_micros: Micros,
        /// Above zero.
        out_micros: Micros,
    }
    /// What a revenue account earned with one model, offer and purse.
    RevenueRow / RevenueRaw {
        account_kind: AccountKind,
        /// Of the primary card; empty for what no card earned.
        model: String,
        /// Empty for what no segment earned.
        sku: String,
        /// Of the tenant: who paid, or was paid back.
        purse_kind: AccountKind,
        entries: u64,
        earned_micros: Micros,
        /// Above zero.
        given_back_micros: Micros,
    }
    /// A lease with what it is of.
    LeasedRow / LeasedRaw {
        lease_id: LeaseId,
        instance_id: InstanceId,
        tenant_id: TenantId,
        host_id: HostId,
        generation: Generation,
        offer_id: OfferId,
        primary_gpu_uuid: GpuUuid,
        model: String,
        cards: u32,
        created_at: Timestamp,
        released_at: Option<Timestamp>,
    }
}

/// A place between the entries of one account: after everything of an earlier instant, and after transfers up to this id within it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerPlace {
    pub at: Timestamp,
    /// Empty: before every transfer of that instant.
    pub transfer_id: String,
}

impl LedgerPlace {
    /// Before everything that happened at `at`.
    pub const fn before(at: Timestamp) -> Self {
        Self { at, transfer_id: String::new() }
    }
}
