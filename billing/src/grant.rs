//! Grants: the buckets of a wallet, and the order in which they are drawn.
//!
//! Every micro in a wallet belongs to one grant: trial, promotional or SLA credit, or the cash of one top-up. Credit is drawn before
//! cash, then by priority, then what expires first, then by id, so any two planners draw alike (M13). A grant is spendable strictly
//! before `expires_at`; what is left at that instant goes back to where it came from. A draw is whole or it is nothing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use tarn_protocol::ids::{GrantId, TenantId, TransferId};
use tarn_protocol::units::Timestamp;

use crate::account::{Account, AccountKind};
use crate::derived;
use crate::money::Micros;
use crate::transfer::{InvalidTransfer, Subject, Transfer, TransferKind, expiry_id, funding_id};

/// Where a grant's money came from. Declared in draw order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GrantKind {
    Trial,
    Promo,
    Sla,
    Cash,
}

/// A text that names no grant kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown grant kind")]
pub struct UnknownGrantKind;

impl GrantKind {
    pub const ALL: [Self; 4] = [Self::Trial, Self::Promo, Self::Sla, Self::Cash];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Trial => "trial",
            Self::Promo => "promo",
            Self::Sla => "sla",
            Self::Cash => "cash",
        }
    }

    /// The wallet account that holds grants of this kind.
    pub const fn wallet(self) -> AccountKind {
        match self {
            Self::Trial | Self::Promo | Self::Sla => AccountKind::WalletPromo,
            Self::Cash => AccountKind::WalletCash,
        }
    }

    /// The account that pays for grants of this kind, and the kind of that transfer.
    const fn source(self) -> (AccountKind, TransferKind) {
        match self {
            Self::Trial => (AccountKind::TrialGrants, TransferKind::TrialCredit),
            Self::Promo => (AccountKind::PromoGrants, TransferKind::PromoCredit),
            Self::Sla => (AccountKind::Sla, TransferKind::SlaCredit),
            Self::Cash => (AccountKind::TopupClearing, TransferKind::TopUp),
        }
    }
}

impl fmt::Display for GrantKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for GrantKind {
    type Err = UnknownGrantKind;
    fn from_str(text: &str) -> Result<Self, UnknownGrantKind> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownGrantKind)
    }
}

/// What a grant is, fixed when it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantTerms {
    pub id: GrantId,
    pub tenant_id: TenantId,
    pub kind: GrantKind,
    /// Lower is drawn earlier, among grants of the same wallet.
    pub priority: i64,
    pub amount: Micros,
    pub granted_at: Timestamp,
    /// `None`: never. Cash never expires.
    pub expires_at: Option<Timestamp>,
}

/// One bucket with what is left of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    terms: GrantTerms,
    remaining: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGrant {
    #[error("a grant of nothing")]
    NotPositive,
    #[error("{remaining} left of a grant of {amount}")]
    InvalidRemaining { remaining: Micros, amount: Micros },
    #[error("cash does not expire")]
    CashExpires,
    #[error("a grant that expires before it is given")]
    ExpiresBeforeGrant,
}

impl Grant {
    /// A new grant, full.
    pub fn new(terms: GrantTerms) -> Result<Self, InvalidGrant> {
        let remaining = terms.amount;
        Self::from_stored(terms, remaining)
    }

    pub fn from_stored(terms: GrantTerms, remaining: Micros) -> Result<Self, InvalidGrant> {
        if terms.amount <= Micros::ZERO {
            return Err(InvalidGrant::NotPositive);
        }
        if remaining < Micros::ZERO || remaining > terms.amount {
            return Err(InvalidGrant::InvalidRemaining { remaining, amount: terms.amount });
        }
        match terms.expires_at {
            Some(_) if terms.kind == GrantKind::Cash => Err(InvalidGrant::CashExpires),
            Some(expires_at) if expires_at <= terms.granted_at => Err(InvalidGrant::ExpiresBeforeGrant),
            _ => Ok(Self { terms, remaining }),
        }
    }

    pub const fn terms(&self) -> &GrantTerms {
        &self.terms
    }

    pub const fn id(&self) -> &GrantId {
        &self.terms.id
    }

    pub const fn remaining(&self) -> Micros {
        self.remaining
    }

    /// Whether it can be drawn at `at`: given, and strictly before its expiry.
    pub fn spendable(&self, at: Timestamp) -> bool {
        at >= self.terms.granted_at && self.terms.expires_at.is_none_or(|expires_at| at < expires_at)
    }

    /// The account that holds this grant's money.
    pub fn wallet(&self) -> Account {
        Account::new(self.terms.kind.wallet(), Some(&self.terms.tenant_id))
            .expect("wallets belong to tenants")
    }

    /// The transfer that fills this grant; one id per grant, so giving it twice collides.
    pub fn funding(&self) -> Result<Transfer, InvalidTransfer> {
        let (source, kind) = self.terms.kind.source();
        let source = Account::new(source, None).expect("grants are paid by system accounts");
        let (id, at) = (funding_id(self.id(), self.terms.granted_at), self.terms.granted_at);
        Transfer::new(id, kind, (source, self.wallet()), self.terms.amount, self.subject(), at)
    }

    /// The transfer that takes back what is left once the grant has expired, and the grant after it. `None` before that, and when
    /// nothing is left.
    pub fn expiry(&self, at: Timestamp) -> Result<Option<(Transfer, Self)>, InvalidTransfer> {
        let Some(expires_at) = self.terms.expires_at.filter(|expires_at| at >= *expires_at) else {
            return Ok(None);
        };
        if self.remaining == Micros::ZERO {
            return Ok(None);
        }
        let (source, _) = self.terms.kind.source();
        let source = Account::new(source, None).expect("grants are paid by system accounts");
        let accounts = (self.wallet(), source);
        let id = expiry_id(self.id(), expires_at);
        let transfer =
            Transfer::new(id, TransferKind::GrantExpiry, accounts, self.remaining, self.subject(), at)?;
        Ok(Some((transfer, Self { remaining: Micros::ZERO, ..self.clone() })))
    }

    /// The transfer that takes `amount` of an expired grant back again, after a refund brought it, and the grant after it. `None` while it
    /// has not expired.
    pub fn expire_again(
        &self,
        id: TransferId,
        amount: Micros,
        at: Timestamp,
    ) -> Result<Option<(Transfer, Self)>, InvalidTransfer> {
        let Some(expires_at) = self.terms.expires_at else { return Ok(None) };
        if expires_at > at {
            return Ok(None);
        }
        let (source, _) = self.terms.kind.source();
        let source = Account::new(source, None).expect("grants are paid by system accounts");
        let remaining = self.remaining.checked_sub(amount)?;
        let accounts = (self.wallet(), source);
        let transfer = Transfer::new(id, TransferKind::GrantExpiry, accounts, amount, self.subject(), at)?;
        Ok(Some((transfer, Self { remaining, ..self.clone() })))
    }

    pub(crate) fn subject(&self) -> Subject {
        Subject { grant_id: Some(self.id().clone()), ..Subject::default() }
    }

    /// What a reversal gives back to this bucket: never more than was drawn from it.
    pub fn put_back(&self, amount: Micros) -> Result<Self, InvalidGrant> {
        let remaining = self.remaining.checked_add(amount).unwrap_or(self.terms.amount);
        if amount <= Micros::ZERO || remaining > self.terms.amount || remaining < self.remaining {
            return Err(InvalidGrant::InvalidRemaining { remaining, amount: self.terms.amount });
        }
        Ok(Self { remaining, ..self.clone() })
    }

    pub(crate) fn take(&mut self, amount: Micros) {
        debug_assert!(amount <= self.remaining, "a draw is at most what is left");
        self.remaining = Micros::new(self.remaining.get() - amount.get());
    }

    /// Credit before cash, then priority, then the earliest expiry (never last), then id.
    pub(crate) fn draw_key(&self) -> (bool, i64, Timestamp, &GrantId) {
        let never = Timestamp::from_micros(i64::MAX);
        let cash = self.terms.kind == GrantKind::Cash;
        (cash, self.terms.priority, self.terms.expires_at.unwrap_or(never), self.id())
    }
}

/// The id of the bucket that the cash of one top-up fills: a payment that is confirmed twice names one bucket. The time part is the
/// instant at which the top-up was asked for.
pub fn cash_id(top_up: &str, asked_at: Timestamp) -> GrantId {
    GrantId::new(asked_at, derived::entropy(&["cash", top_up]))
}

/// The id of the bucket that takes the place of `expired`, for what `refund` gives back to it.
pub fn renewed_id(expired: &GrantId, refund: &str, at: Timestamp) -> GrantId {
    GrantId::new(at, derived::entropy(&["renewed", expired.as_str(), refund]))
}

/// The id of the credit for one incident: it is credited once.
pub fn sla_id(incident: &str, at: Timestamp) -> GrantId {
    GrantId::new(at, derived::entropy(&["sla", incident]))
}
