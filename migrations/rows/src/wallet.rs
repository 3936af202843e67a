//! What a tenant has: balances, grants of credit, holds.

use tarn_billing::account::AccountKind;
use tarn_billing::grant::GrantKind;
use tarn_billing::money::Micros;
use tarn_protocol::ids::{AccountId, GrantId, HoldId, InstanceId, TenantId};
use tarn_protocol::units::Timestamp;

use crate::stored::{rows, words};

words! {
    /// A hold resolves once.
    HoldState {
        Pending = "pending",
        Posted = "posted",
        Voided = "voided",
        Expired = "expired",
    }
}

rows! {
    BalanceRow / BalanceRaw {
        account_id: AccountId,
        kind: AccountKind,
        posted_micros: Micros,
        held_micros: Micros,
        /// Seq of the newest entry.
        version: i64,
    }
    GrantRow / GrantRaw {
        id: GrantId,
        tenant_id: TenantId,
        kind: GrantKind,
        /// Lower is drawn earlier.
        priority: i64,
        granted_micros: Micros,
        remaining_micros: Micros,
        expires_at: Option<Timestamp>,
        created_at: Timestamp,
    }
    HoldRow / HoldRaw {
        id: HoldId,
        tenant_id: TenantId,
        account_id: AccountId,
        instance_id: Option<InstanceId>,
        amount_micros: Micros,
        state: HoldState,
        created_at: Timestamp,
        expires_at: Timestamp,
        resolved_at: Option<Timestamp>,
    }
}
