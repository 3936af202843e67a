//! Ledger accounts: who holds money.
//!
//! A tenant has three (two wallets and what it owes); everything else is Tarn's own and exists once. Accounts are named by what
//! they are, so their ids are derived and no lookup precedes a transfer. Only wallets carry a running balance: on a system account
//! it would be one hot row for every tenant.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tarn_protocol::ids::{AccountId, TenantId};
use tarn_protocol::units::Timestamp;

use crate::derived;

/// What an account is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccountKind {
    /// Tenant: money paid in.
    WalletCash,
    /// Tenant: trial and promotional credit; never becomes cash.
    WalletPromo,
    /// Tenant: what it owes beyond its wallets.
    Receivable,
    /// Earned by cards.
    RevenueGpu,
    /// Earned by volumes.
    RevenueStorage,
    /// Money on its way in from a payment provider.
    TopupClearing,
    /// The cost of trial credit.
    TrialGrants,
    /// The cost of promotional credit.
    PromoGrants,
    /// Money given back outside the wallet.
    Refund,
    /// Credits for promises not kept.
    Sla,
}

/// A text that names no account kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown account kind")]
pub struct UnknownAccountKind;

impl AccountKind {
    pub const ALL: [Self; 10] = [
        Self::WalletCash,
        Self::WalletPromo,
        Self::Receivable,
        Self::RevenueGpu,
        Self::RevenueStorage,
        Self::TopupClearing,
        Self::TrialGrants,
        Self::PromoGrants,
        Self::Refund,
        Self::Sla,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WalletCash => "wallet_cash",
            Self::WalletPromo => "wallet_promo",
            Self::Receivable => "receivable",
            Self::RevenueGpu => "revenue_gpu",
            Self::RevenueStorage => "revenue_storage",
            Self::TopupClearing => "topup_clearing",
            Self::TrialGrants => "trial_grants",
            Self::PromoGrants => "promo_grants",
            Self::Refund => "refund",
            Self::Sla => "sla",
        }
    }

    /// A wallet: has a running balance, a sequence and a floor of zero.
    pub const fn wallet(self) -> bool {
        matches!(self, Self::WalletCash | Self::WalletPromo)
    }

    /// Belongs to one tenant; all other kinds exist once.
    pub const fn of_tenant(self) -> bool {
        matches!(self, Self::WalletCash | Self::WalletPromo | Self::Receivable)
    }
}

impl fmt::Display for AccountKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for AccountKind {
    type Err = UnknownAccountKind;
    fn from_str(text: &str) -> Result<Self, UnknownAccountKind> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownAccountKind)
    }
}

/// One account of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Account {
    id: AccountId,
    kind: AccountKind,
    tenant_id: Option<TenantId>,
}

/// An account whose kind and owner do not go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAccount {
    #[error("{0} belongs to a tenant")]
    NeedsTenant(AccountKind),
    #[error("{0} belongs to no tenant")]
    TakesNoTenant(AccountKind),
    #[error("{0} has another id")]
    OtherId(AccountKind),
}

impl Account {
    /// The account of `kind`: the tenant's own for tenant kinds, the only one for system kinds.
    pub fn new(kind: AccountKind, tenant_id: Option<&TenantId>) -> Result<Self, InvalidAccount> {
        match (kind.of_tenant(), tenant_id) {
            (true, None) => Err(InvalidAccount::NeedsTenant(kind)),
            (false, Some(_)) => Err(InvalidAccount::TakesNoTenant(kind)),
            (_, owner) => {
                let owner_text = owner.map_or("", TenantId::as_str);
                let entropy = derived::entropy(&["account", kind.as_str(), owner_text]);
                let id = AccountId::new(Timestamp::from_micros(0), entropy);
                Ok(Self { id, kind, tenant_id: owner.cloned() })
            }
        }
    }

    pub fn wallet_cash(tenant_id: &TenantId) -> Self {
        Self::new(AccountKind::WalletCash, Some(tenant_id)).expect("a tenant kind with its tenant")
    }

    pub fn wallet_promo(tenant_id: &TenantId) -> Self {
        Self::new(AccountKind::WalletPromo, Some(tenant_id)).expect("a tenant kind with its tenant")
    }

    /// The three accounts every tenant gets at sign-up.
    pub fn all_of(tenant_id: &TenantId) -> Vec<Self> {
        AccountKind::ALL.into_iter().filter_map(|kind| Self::new(kind, Some(tenant_id)).ok()).collect()
    }

    /// Tarn's own accounts, made once.
    pub fn all_of_system() -> Vec<Self> {
        AccountKind::ALL.into_iter().filter_map(|kind| Self::new(kind, None).ok()).collect()
    }

    /// From a stored row; refuses a row whose id is not the derived one.
    pub fn from_stored(
        id: &AccountId,
        kind: AccountKind,
        tenant_id: Option<&TenantId>,
    ) -> Result<Self, InvalidAccount> {
        let account = Self::new(kind, tenant_id)?;
        if account.id == *id { Ok(account) } else { Err(InvalidAccount::OtherId(kind)) }
    }

    pub const fn id(&self) -> &AccountId {
        &self.id
    }

    pub const fn kind(&self) -> AccountKind {
        self.kind
    }

    pub const fn tenant_id(&self) -> Option<&TenantId> {
        self.tenant_id.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_named_by_what_they_are() {
        let one = TenantId::new(Timestamp::from_micros(1_000), 1);
        let two = TenantId::new(Timestamp::from_micros(1_000), 2);
        assert_eq!(Account::wallet_cash(&one), Account::wallet_cash(&one));
        let ids: std::collections::HashSet<_> =
            [Account::all_of(&one), Account::all_of(&two), Account::all_of_system()]
                .concat()
                .iter()
                .map(|account| account.id().clone())
                .collect();
        assert_eq!(ids.len(), 3 + 3 + 7);
        assert!(Account::new(AccountKind::WalletCash, None).is_err());
        assert!(Account::new(AccountKind::Sla, Some(&one)).is_err());
        let cash = Account::wallet_cash(&one);
        assert!(Account::from_stored(cash.id(), AccountKind::WalletPromo, Some(&one)).is_err());
        for kind in AccountKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
    }
}
