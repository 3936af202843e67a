//! Wallet balances: the running balance of one wallet account and the entry each transfer leaves on it.
//!
//! A balance is the sum of its entries and equals the last running balance (M2). It has a floor of zero: an entry that would pass
//! below is refused, and so is the whole commit that carries it. `seq` orders the entries of one account; `(account, seq)` is
//! unique in the store, so two writers that read the same balance cannot both commit.

use tarn_protocol::ids::{AccountId, TransferId};

use crate::account::Account;
use crate::money::{Micros, OutOfRange};
use crate::transfer::Transfer;

/// One wallet account's stored balance. `seq` is that of its newest entry; 0 is an empty wallet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalletBalance {
    account_id: AccountId,
    posted: Micros,
    seq: i64,
}

/// One signed entry on a wallet with the balance it leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalletEntry {
    pub transfer_id: TransferId,
    pub account_id: AccountId,
    pub amount: Micros,
    /// 1 for the first entry of an account, growing by one.
    pub seq: i64,
    pub balance_after: Micros,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPosting {
    #[error("account {0} is not a wallet")]
    NotAWallet(AccountId),
    #[error("transfer {transfer_id} does not touch wallet {account_id}")]
    OtherAccount { transfer_id: TransferId, account_id: AccountId },
    #[error("wallet {account_id} holds {posted}, which does not cover {wanted}")]
    BelowFloor { account_id: AccountId, posted: Micros, wanted: Micros },
    #[error("a stored balance of {posted} at sequence {seq}")]
    InvalidStored { posted: Micros, seq: i64 },
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

impl WalletBalance {
    /// A wallet without entries.
    pub fn empty(account: &Account) -> Result<Self, InvalidPosting> {
        if account.kind().wallet() {
            Ok(Self { account_id: account.id().clone(), posted: Micros::ZERO, seq: 0 })
        } else {
            Err(InvalidPosting::NotAWallet(account.id().clone()))
        }
    }

    pub fn from_stored(account: &Account, posted: Micros, seq: i64) -> Result<Self, InvalidPosting> {
        let empty = Self::empty(account)?;
        if posted < Micros::ZERO || seq < 0 || (seq == 0 && posted != Micros::ZERO) {
            return Err(InvalidPosting::InvalidStored { posted, seq });
        }
        Ok(Self { posted, seq, ..empty })
    }

    /// Posts this wallet's side of `transfer`: the next balance and the entry to insert.
    pub fn post(&self, transfer: &Transfer) -> Result<(Self, WalletEntry), InvalidPosting> {
        let amount = transfer.amount_on(&self.account_id).ok_or_else(|| InvalidPosting::OtherAccount {
            transfer_id: transfer.id().clone(),
            account_id: self.account_id.clone(),
        })?;
        let posted = self.posted.checked_add(amount)?;
        if posted < Micros::ZERO {
            return Err(InvalidPosting::BelowFloor {
                account_id: self.account_id.clone(),
                posted: self.posted,
                wanted: transfer.amount(),
            });
        }
        let next = Self { account_id: self.account_id.clone(), posted, seq: self.seq + 1 };
        let entry = WalletEntry {
            transfer_id: transfer.id().clone(),
            account_id: self.account_id.clone(),
            amount,
            seq: next.seq,
            balance_after: posted,
        };
        Ok((next, entry))
    }

    pub const fn account_id(&self) -> &AccountId {
        &self.account_id
    }

    pub const fn posted(&self) -> Micros {
        self.posted
    }

    pub const fn seq(&self) -> i64 {
        self.seq
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::AccountKind;
    use crate::transfer::{Subject, TransferKind};
    use tarn_protocol::ids::TenantId;
    use tarn_protocol::units::Timestamp;

    #[test]
    fn m3_a_wallet_has_a_floor_of_zero() {
        let at = Timestamp::from_micros(0);
        let wallet = Account::wallet_cash(&TenantId::new(at, 1));
        let revenue = Account::new(AccountKind::RevenueGpu, None).unwrap();
        let balance = WalletBalance::from_stored(&wallet, Micros::new(100), 7).unwrap();
        let spend = |amount| {
            let accounts = (wallet.clone(), revenue.clone());
            let id = TransferId::new(at, 1);
            let subject = Subject::default();
            Transfer::new(id, TransferKind::Usage, accounts, Micros::new(amount), subject, at).unwrap()
        };
        let (after, entry) = balance.post(&spend(100)).unwrap();
        assert_eq!((after.posted(), after.seq()), (Micros::ZERO, 8));
        assert_eq!((entry.amount, entry.seq, entry.balance_after), (Micros::new(-100), 8, Micros::ZERO));
        assert!(matches!(balance.post(&spend(101)), Err(InvalidPosting::BelowFloor { .. })));
        assert!(WalletBalance::empty(&revenue).is_err());
        assert!(WalletBalance::from_stored(&wallet, Micros::new(1), 0).is_err());
    }
}
