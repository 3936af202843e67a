//! What a tenant has: balances, grants of credit, holds; and all of it in one reading.

use tarn_billing::account::AccountKind;
use tarn_billing::grant::GrantKind;
use tarn_billing::money::Micros;
use tarn_billing::rate::Rate;
use tarn_protocol::ids::{AccountId, GrantId, HoldId, InstanceId, SegmentId, TenantId};
use tarn_protocol::units::Timestamp;

use crate::scope::TenantScope;
use crate::stored::{BadValue, Stored, rows, words};

words! {
    /// A hold resolves once.
    HoldState {
        Pending = "pending",
        Posted = "posted",
        Voided = "voided",
        Expired = "expired",
    }
}

words! {
    /// Which table a line of a wallet's reading is from.
    WalletPart {
        Balance = "balance",
        Burning = "burning",
        Debt = "debt",
        Grant = "grant",
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
    /// One line of a wallet's reading, whichever table it is from.
    WalletLineRow / WalletLineRaw {
        part: WalletPart,
        id: String,
        /// Of the account or the grant; the SKU of what burns.
        kind: String,
        /// Posted, granted, owed, or the rate per hour.
        first_micros: Micros,
        /// Held, or remaining.
        second_micros: Micros,
        /// Version, or priority.
        number: i64,
        /// When it expires, or exhausts the wallet.
        until_at: Option<Timestamp>,
        created_at: Timestamp,
    }
}

/// What burns money now.
#[derive(Debug, Clone, PartialEq)]
pub struct BurningRow {
    pub segment_id: SegmentId,
    pub micros_per_hour: Rate,
    pub exhausts_at: Option<Timestamp>,
}

/// One tenant's wallet as one statement sees it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WalletRow {
    pub balances: Vec<BalanceRow>,
    /// Oldest first.
    pub grants: Vec<GrantRow>,
    pub burning: Vec<BurningRow>,
    /// Beyond the wallets.
    pub owed_micros: Micros,
}

impl WalletRow {
    pub fn from_lines(scope: &TenantScope, lines: Vec<WalletLineRow>) -> Result<Self, BadValue> {
        let mut wallet = Self::default();
        for line in lines {
            match line.part {
                WalletPart::Balance => wallet.balances.push(BalanceRow {
                    account_id: Stored::from_raw(line.id)?,
                    kind: Stored::from_raw(line.kind)?,
                    posted_micros: line.first_micros,
                    held_micros: line.second_micros,
                    version: line.number,
                }),
                WalletPart::Burning => wallet.burning.push(BurningRow {
                    segment_id: Stored::from_raw(line.id)?,
                    micros_per_hour: Stored::from_raw(line.first_micros.get())?,
                    exhausts_at: line.until_at,
                }),
                WalletPart::Debt => wallet.owed_micros = line.first_micros,
                WalletPart::Grant => wallet.grants.push(GrantRow {
                    id: Stored::from_raw(line.id)?,
                    tenant_id: scope.tenant_id().clone(),
                    kind: Stored::from_raw(line.kind)?,
                    priority: line.number,
                    granted_micros: line.first_micros,
                    remaining_micros: line.second_micros,
                    expires_at: line.until_at,
                    created_at: line.created_at,
                }),
            }
        }
        Ok(wallet)
    }
}
