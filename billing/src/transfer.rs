//! Transfers: immutable movements of money from one account to another.
//!
//! A transfer takes a positive amount from its debit account and gives it to its credit account, so its two entries sum to zero by
//! construction (M1). Its id is chosen before the first attempt; a correction is a new transfer that `reverses` an older one. Which
//! accounts a kind may join is a table, so promotional credit can never turn into cash.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tarn_protocol::ids::{AccountId, GrantId, SegmentId, TransferId};
use tarn_protocol::units::Timestamp;

use crate::account::{Account, AccountKind};
use crate::derived;
use crate::money::{Currency, Micros, OutOfRange};
use crate::rate::Seconds;

/// Why money moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferKind {
    TrialCredit,
    PromoCredit,
    TopUp,
    /// Seconds of a segment.
    Usage,
    /// What was left of a grant at its expiry.
    GrantExpiry,
    SlaCredit,
    /// Gives back a usage charge, to the bucket charged; or a payout that the payment provider could not make.
    Reversal,
    /// Cash leaves the wallet for the customer, by the way on which it came: names the top-up that it takes back.
    Payout,
    /// Pays what is owed for seconds that were proven after the money had ended.
    DebtPayment,
}

/// A text that names no transfer kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown transfer kind")]
pub struct UnknownTransferKind;

impl TransferKind {
    pub const ALL: [Self; 9] = [
        Self::TrialCredit,
        Self::PromoCredit,
        Self::TopUp,
        Self::Usage,
        Self::GrantExpiry,
        Self::SlaCredit,
        Self::Reversal,
        Self::Payout,
        Self::DebtPayment,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TrialCredit => "trial_credit",
            Self::PromoCredit => "promo_credit",
            Self::TopUp => "top_up",
            Self::Usage => "usage",
            Self::GrantExpiry => "grant_expiry",
            Self::SlaCredit => "sla_credit",
            Self::Reversal => "reversal",
            Self::Payout => "payout",
            Self::DebtPayment => "debt_payment",
        }
    }

    /// Whether this kind may move money from `debit` to `credit`.
    pub const fn joins(self, debit: AccountKind, credit: AccountKind) -> bool {
        use AccountKind as A;
        match self {
            Self::TrialCredit => matches!((debit, credit), (A::TrialGrants, A::WalletPromo)),
            Self::PromoCredit => matches!((debit, credit), (A::PromoGrants, A::WalletPromo)),
            Self::TopUp => matches!((debit, credit), (A::TopupClearing, A::WalletCash)),
            Self::Usage => {
                matches!(debit, A::WalletCash | A::WalletPromo | A::Receivable)
                    && matches!(credit, A::RevenueGpu | A::RevenueStorage)
            }
            Self::GrantExpiry => {
                matches!((debit, credit), (A::WalletPromo, A::TrialGrants | A::PromoGrants | A::Sla))
            }
            Self::SlaCredit => matches!((debit, credit), (A::Sla, A::WalletPromo)),
            Self::Reversal => {
                matches!((debit, credit), (A::Refund, A::WalletCash))
                    || matches!(debit, A::RevenueGpu | A::RevenueStorage)
                        && matches!(credit, A::WalletCash | A::WalletPromo | A::Receivable)
            }
            Self::Payout => matches!((debit, credit), (A::WalletCash, A::Refund)),
            Self::DebtPayment => {
                matches!((debit, credit), (A::WalletCash | A::WalletPromo, A::Receivable))
            }
        }
    }
}

impl fmt::Display for TransferKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for TransferKind {
    type Err = UnknownTransferKind;
    fn from_str(text: &str) -> Result<Self, UnknownTransferKind> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownTransferKind)
    }
}

/// What a transfer is about: kept with it, so that a line of the ledger explains itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subject {
    /// The bucket of the wallet that was drawn or filled.
    pub grant_id: Option<GrantId>,
    /// The segment whose seconds were charged or given back.
    pub segment_id: Option<SegmentId>,
    /// The transfer that this one corrects.
    pub reverses: Option<TransferId>,
}

/// One movement. Built by [`Transfer::new`], which proves the rules; the same call maps a stored row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transfer {
    id: TransferId,
    kind: TransferKind,
    debit: Account,
    credit: Account,
    amount: Micros,
    currency: Currency,
    subject: Subject,
    at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTransfer {
    #[error("a transfer moves more than zero")]
    NotPositive,
    #[error("a transfer joins two accounts")]
    OneAccount,
    #[error("{kind} does not move money from {debit} to {credit}")]
    WrongAccounts { kind: TransferKind, debit: AccountKind, credit: AccountKind },
    #[error("a transfer between two tenants")]
    TwoTenants,
    #[error("a reversal or a payout names the transfer it takes back, and nothing else does")]
    WrongReverses,
    #[error("a reversal of more than is left of the original")]
    ExceedsOriginal,
    #[error("only a usage charge or a payout can be reversed")]
    NotReversible,
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

/// One side of a transfer: negative on the debit account, positive on the credit account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub transfer_id: TransferId,
    pub account_id: AccountId,
    pub amount: Micros,
}

impl Transfer {
    pub fn new(
        id: TransferId,
        kind: TransferKind,
        (debit, credit): (Account, Account),
        amount: Micros,
        subject: Subject,
        at: Timestamp,
    ) -> Result<Self, InvalidTransfer> {
        if amount <= Micros::ZERO {
            return Err(InvalidTransfer::NotPositive);
        }
        if debit.id() == credit.id() {
            return Err(InvalidTransfer::OneAccount);
        }
        if !kind.joins(debit.kind(), credit.kind()) {
            return Err(InvalidTransfer::WrongAccounts { kind, debit: debit.kind(), credit: credit.kind() });
        }
        if debit.tenant_id().zip(credit.tenant_id()).is_some_and(|(payer, payee)| payer != payee) {
            return Err(InvalidTransfer::TwoTenants);
        }
        if subject.reverses.is_some() != matches!(kind, TransferKind::Reversal | TransferKind::Payout) {
            return Err(InvalidTransfer::WrongReverses);
        }
        Ok(Self { id, kind, debit, credit, amount, currency: Currency::Cny, subject, at })
    }

    /// The transfer that gives back `amount` of this usage charge (or payout) to the bucket charged; `reversed` is what earlier
    /// reversals of it sum to (M17).
    pub fn reversal(
        &self,
        id: TransferId,
        amount: Micros,
        reversed: Micros,
        at: Timestamp,
    ) -> Result<Self, InvalidTransfer> {
        if !matches!(self.kind, TransferKind::Usage | TransferKind::Payout) {
            return Err(InvalidTransfer::NotReversible);
        }
        let accounts = (self.credit.clone(), self.debit.clone());
        self.taking_back(id, TransferKind::Reversal, accounts, amount, reversed, at)
    }

    /// The transfer that pays `amount` of this top-up out again; `reversed` is what payouts of it that stand sum to.
    pub fn payout(
        &self,
        id: TransferId,
        amount: Micros,
        reversed: Micros,
        at: Timestamp,
    ) -> Result<Self, InvalidTransfer> {
        if self.kind != TransferKind::TopUp {
            return Err(InvalidTransfer::NotReversible);
        }
        let refund = Account::new(AccountKind::Refund, None).expect("refund is a system account");
        self.taking_back(id, TransferKind::Payout, (self.credit.clone(), refund), amount, reversed, at)
    }

    fn taking_back(
        &self,
        id: TransferId,
        kind: TransferKind,
        accounts: (Account, Account),
        amount: Micros,
        reversed: Micros,
        at: Timestamp,
    ) -> Result<Self, InvalidTransfer> {
        if reversed.checked_add(amount)? > self.amount {
            return Err(InvalidTransfer::ExceedsOriginal);
        }
        let subject = Subject { reverses: Some(self.id.clone()), ..self.subject.clone() };
        Self::new(id, kind, accounts, amount, subject, at)
    }

    /// The two entries; they sum to zero.
    pub fn entries(&self) -> [Entry; 2] {
        let debited = self.amount.checked_neg().expect("a positive amount has a negative");
        let entry = |account: &Account, amount| Entry {
            transfer_id: self.id.clone(),
            account_id: account.id().clone(),
            amount,
        };
        [entry(&self.debit, debited), entry(&self.credit, self.amount)]
    }

    /// The signed amount on `account_id`, `None` when this transfer does not touch it.
    pub fn amount_on(&self, account_id: &AccountId) -> Option<Micros> {
        self.entries().into_iter().find(|entry| entry.account_id == *account_id).map(|entry| entry.amount)
    }

    pub const fn id(&self) -> &TransferId {
        &self.id
    }

    pub const fn kind(&self) -> TransferKind {
        self.kind
    }

    pub const fn debit(&self) -> &Account {
        &self.debit
    }

    pub const fn credit(&self) -> &Account {
        &self.credit
    }

    /// Always above zero.
    pub const fn amount(&self) -> Micros {
        self.amount
    }

    pub const fn currency(&self) -> Currency {
        self.currency
    }

    pub const fn subject(&self) -> &Subject {
        &self.subject
    }

    pub const fn at(&self) -> Timestamp {
        self.at
    }
}

/// The id of the transfer that charges a segment from second `first` on to one grant. It follows from these three alone, so a
/// settlement that is tried twice collides with itself. The time part is the instant of that second, `opened_at + first`.
pub fn settlement_id(
    segment_id: &SegmentId,
    opened_at: Timestamp,
    first: Seconds,
    bucket: &GrantId,
) -> TransferId {
    let second = first.get().to_string();
    let entropy = derived::entropy(&["settlement", segment_id.as_str(), &second, bucket.as_str()]);
    TransferId::new(opened_at.plus_seconds(first.get()), entropy)
}

/// The id of the transfer that charges a segment from second `first` on to what its tenant owes.
pub fn debt_id(segment_id: &SegmentId, opened_at: Timestamp, first: Seconds) -> TransferId {
    let entropy = derived::entropy(&["debt", segment_id.as_str(), &first.get().to_string()]);
    TransferId::new(opened_at.plus_seconds(first.get()), entropy)
}

/// The id of the transfer by which `bucket` pays what was owed at `at`.
pub fn debt_payment_id(bucket: &GrantId, at: Timestamp) -> TransferId {
    TransferId::new(at, derived::entropy(&["debt payment", bucket.as_str(), &at.as_micros().to_string()]))
}

/// The id of the transfer that fills `grant_id`: one grant is filled once.
pub fn funding_id(grant_id: &GrantId, granted_at: Timestamp) -> TransferId {
    TransferId::new(granted_at, derived::entropy(&["funding", grant_id.as_str()]))
}

/// The id of the transfer that takes back what is left of `grant_id`: one grant expires once.
pub fn expiry_id(grant_id: &GrantId, expires_at: Timestamp) -> TransferId {
    TransferId::new(expires_at, derived::entropy(&["expiry", grant_id.as_str()]))
}

/// The id of the reversal of `original` that `refund` asks for: one refund reverses a charge once.
pub fn reversal_id(original: &TransferId, refund: &str, at: Timestamp) -> TransferId {
    TransferId::new(at, derived::entropy(&["reversal", original.as_str(), refund]))
}

/// The id of the transfer that takes back what `refund` brought to a grant that has expired.
pub fn expiry_again_id(grant_id: &GrantId, refund: &str, at: Timestamp) -> TransferId {
    TransferId::new(at, derived::entropy(&["expiry again", grant_id.as_str(), refund]))
}

/// The id of the movement of cash that `refund` makes, and, with `back`, of the one that undoes it: one refund pays out once.
pub fn payout_id(refund: &str, back: bool, at: Timestamp) -> TransferId {
    TransferId::new(at, derived::entropy(&["payout", refund, if back { "back" } else { "out" }]))
}
