//! Revenue: what Tarn earned in a period, by model of the primary card and by offer, and from which purse.
//!
//! Every entry on a revenue account is in exactly one row, also one whose card or segment is not known any more, so the rows sum to
//! the accounts. The sum is taken a second time without any of the joins, and the two must agree.

use std::collections::BTreeMap;

use tarn_billing::account::{Account, AccountKind};
use tarn_billing::money::{Micros, OutOfRange};
use tarn_store::{StoreError, Tx};

use super::Period;

/// The accounts that earn.
pub const EARNING: [AccountKind; 2] = [AccountKind::RevenueGpu, AccountKind::RevenueStorage];

#[derive(Debug, thiserror::Error)]
pub enum RevenueError {
    #[error("the rows of {0} do not sum to the account")]
    DoesNotAddUp(AccountKind),
    #[error(transparent)]
    Amount(#[from] OutOfRange),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What earned.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Source {
    pub account: AccountKind,
    /// Empty: no card.
    pub model: String,
    /// Empty: no segment.
    pub offer: String,
}

/// What it earned. `net` is `earned - given_back` and the sum of the three purses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Earned {
    pub earned: Micros,
    pub given_back: Micros,
    pub net: Micros,
    pub of_cash: Micros,
    pub of_credit: Micros,
    /// Owed, not paid.
    pub of_debt: Micros,
    pub entries: u64,
}

impl Earned {
    fn add(&mut self, other: &Self) -> Result<(), OutOfRange> {
        self.earned = self.earned.checked_add(other.earned)?;
        self.given_back = self.given_back.checked_add(other.given_back)?;
        self.net = self.net.checked_add(other.net)?;
        self.of_cash = self.of_cash.checked_add(other.of_cash)?;
        self.of_credit = self.of_credit.checked_add(other.of_credit)?;
        self.of_debt = self.of_debt.checked_add(other.of_debt)?;
        self.entries += other.entries;
        Ok(())
    }
}

#[derive(Debug, Default)]
pub struct Revenue {
    pub sources: BTreeMap<Source, Earned>,
    pub total: Earned,
}

pub async fn revenue(tx: &mut Tx, period: Period) -> Result<Revenue, RevenueError> {
    let mut revenue = Revenue::default();
    for kind in EARNING {
        let account = Account::new(kind, None).expect("revenue accounts are Tarn's own");
        let mut whole = Earned::default();
        for row in tx.revenue(account.id(), period.from, period.to).await? {
            let net = row.earned_micros.checked_sub(row.given_back_micros)?;
            let of = |kind| if row.purse_kind == kind { net } else { Micros::ZERO };
            let earned = Earned {
                earned: row.earned_micros,
                given_back: row.given_back_micros,
                net,
                of_cash: of(AccountKind::WalletCash),
                of_credit: of(AccountKind::WalletPromo),
                of_debt: of(AccountKind::Receivable),
                entries: row.entries,
            };
            whole.add(&earned)?;
            let source = Source { account: row.account_kind, model: row.model, offer: row.sku };
            revenue.sources.entry(source).or_default().add(&earned)?;
        }
        let entries = tx.system_turnover(account.id(), period.from, period.to).await?;
        if (whole.earned, whole.given_back, whole.entries)
            != (entries.in_micros, entries.out_micros, entries.entries)
        {
            return Err(RevenueError::DoesNotAddUp(kind));
        }
        revenue.total.add(&whole)?;
    }
    Ok(revenue)
}
