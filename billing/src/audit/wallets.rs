//! Wallets: the sequence of their entries, the running balance, the balance, and what holds keep back.

use std::collections::BTreeMap;

use tarn_protocol::ids::{AccountId, HoldId, TenantId};

use super::difference::{Difference, Rule, same, shown};
use crate::account::{Account, AccountKind};
use crate::money::Micros;

/// An account, with its balance if it has one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountFact {
    pub id: AccountId,
    pub kind: AccountKind,
    pub tenant_id: Option<TenantId>,
    pub balance: Option<BalanceFact>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BalanceFact {
    pub posted: Micros,
    pub held: Micros,
    /// Sequence of the newest entry.
    pub version: i64,
}

/// A hold that is pending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldFact {
    pub id: HoldId,
    pub account_id: AccountId,
    pub amount: Micros,
}

/// An entry with a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalletEntryFact {
    pub account_id: AccountId,
    pub seq: i64,
    pub amount: Micros,
    pub balance_after: Option<Micros>,
}

#[derive(Debug)]
struct Wallet {
    fact: AccountFact,
    seq: i64,
    balance: i128,
    held: i128,
}

/// A window of accounts: all of them, then their pending holds, then their entries that have a sequence, those of one account
/// together and in order; then [`Wallets::end_of_accounts`].
#[derive(Debug, Default)]
pub struct Wallets {
    window: BTreeMap<AccountId, Wallet>,
    pub(super) accounts: u64,
    pub(super) balances: u64,
    pub(super) holds: u64,
    pub(super) entries: u64,
    pub(super) totals: BTreeMap<AccountKind, i128>,
}

impl Wallets {
    pub fn account(&mut self, fact: AccountFact) -> Result<(), Difference> {
        let row = || format!("account {}", fact.id);
        Account::from_stored(&fact.id, fact.kind, fact.tenant_id.as_ref())
            .map_err(|broken| Difference::new(Rule::Account, row(), "rules", "a valid account", broken))?;
        same(Rule::Account, row, "has a balance", fact.kind.wallet(), fact.balance.is_some())?;
        self.accounts += 1;
        self.balances += u64::from(fact.balance.is_some());
        self.window.insert(fact.id.clone(), Wallet { fact, seq: 0, balance: 0, held: 0 });
        Ok(())
    }

    pub fn hold(&mut self, fact: &HoldFact) -> Result<(), Difference> {
        self.holds += 1;
        let row = || format!("hold {}", fact.id);
        let wallet = self.window.get_mut(&fact.account_id).filter(|wallet| wallet.fact.balance.is_some());
        let wallet = wallet
            .ok_or_else(|| Difference::new(Rule::Hold, row(), "account", "a wallet", &fact.account_id))?;
        wallet.held += i128::from(fact.amount.get());
        Ok(())
    }

    pub fn entry(&mut self, fact: &WalletEntryFact) -> Result<(), Difference> {
        self.entries += 1;
        let row = || format!("entry {} of account {}", fact.seq, fact.account_id);
        let wallet = self.window.get_mut(&fact.account_id).filter(|wallet| wallet.fact.balance.is_some());
        let Some(wallet) = wallet else {
            return Err(Difference::new(
                Rule::RunningBalance,
                row(),
                "account",
                "a wallet",
                &fact.account_id,
            ));
        };
        same(Rule::RunningBalance, row, "sequence", wallet.seq + 1, fact.seq)?;
        wallet.seq = fact.seq;
        wallet.balance += i128::from(fact.amount.get());
        let found = fact.balance_after.map(|balance| i128::from(balance.get()));
        if found != Some(wallet.balance) {
            let found = shown(found.as_ref());
            return Err(Difference::new(
                Rule::RunningBalance,
                row(),
                "running balance",
                wallet.balance,
                found,
            ));
        }
        Ok(())
    }

    pub fn end_of_accounts(&mut self) -> Result<(), Difference> {
        for wallet in std::mem::take(&mut self.window).into_values() {
            let Some(balance) = wallet.fact.balance else { continue };
            let row = || format!("wallet {} of {}", wallet.fact.id, shown(wallet.fact.tenant_id.as_ref()));
            let (posted, held) = (i128::from(balance.posted.get()), i128::from(balance.held.get()));
            same(Rule::WalletBalance, row, "micros posted", wallet.balance, posted)?;
            same(Rule::WalletBalance, row, "sequence of its newest entry", wallet.seq, balance.version)?;
            same(Rule::Hold, row, "micros that pending holds hold", wallet.held, held)?;
            if posted < held || held < 0 {
                let wanted = format!("between 0 and {posted}");
                return Err(Difference::new(Rule::Hold, row(), "micros held", wanted, held));
            }
            *self.totals.entry(wallet.fact.kind).or_default() += posted;
        }
        Ok(())
    }
}
