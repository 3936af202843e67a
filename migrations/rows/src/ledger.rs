//! Accounts, transfers and their entries.

use tarn_billing::account::AccountKind;
use tarn_billing::money::{Currency, Micros};
use tarn_billing::transfer::TransferKind;
use tarn_protocol::ids::{AccountId, GrantId, SegmentId, TenantId, TransferId};
use tarn_protocol::units::Timestamp;

use crate::stored::rows;

rows! {
    AccountRow / AccountRaw {
        id: AccountId,
        /// `None` for Tarn's own.
        tenant_id: Option<TenantId>,
        kind: AccountKind,
        currency: Currency,
        created_at: Timestamp,
    }
    TransferRow / TransferRaw {
        /// Chosen before the first attempt.
        id: TransferId,
        kind: TransferKind,
        debit_account_id: AccountId,
        credit_account_id: AccountId,
        /// Above zero.
        amount_micros: Micros,
        tenant_id: Option<TenantId>,
        segment_id: Option<SegmentId>,
        grant_id: Option<GrantId>,
        reverses: Option<TransferId>,
        external_provider: Option<String>,
        external_id: Option<String>,
        memo: String,
        created_at: Timestamp,
    }
    /// One side of a transfer, as a ledger page shows it.
    EntryRow / EntryRaw {
        transfer_id: TransferId,
        account_id: AccountId,
        amount_micros: Micros,
        /// Wallets only.
        seq: Option<i64>,
        balance_after_micros: Option<Micros>,
        created_at: Timestamp,
    }
    /// A wallet's entry with its transfer: one line a customer reads.
    LedgerLineRow / LedgerLineRaw {
        transfer_id: TransferId,
        account_kind: AccountKind,
        transfer_kind: TransferKind,
        amount_micros: Micros,
        balance_after_micros: Option<Micros>,
        segment_id: Option<SegmentId>,
        grant_id: Option<GrantId>,
        memo: String,
        created_at: Timestamp,
    }
    /// The ledger's invariants, counted.
    AuditRow / AuditRaw {
        transfers: u64,
        /// Whose entries are not two that sum to zero. Always 0.
        unbalanced_transfers: u64,
        wallets: u64,
        /// Whose balance is not the sum of its entries and the newest running balance. Always 0.
        wrong_wallets: u64,
        /// Whose held amount is not the sum of its pending holds. Always 0.
        wrong_holds: u64,
    }
}

/// What became of a transfer that was posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posting {
    /// Written now.
    Posted,
    /// The same transfer was there already; nothing changed.
    Replayed,
    /// The debited wallet does not cover it; nothing changed.
    Insufficient,
    /// Another transfer has this id; nothing changed.
    Conflicting,
}
