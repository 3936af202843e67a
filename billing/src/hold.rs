//! Holds: money set aside before it is owed.
//!
//! A hold is made in the same statement that checks the start gate, so two racing starts cannot both rely on the same money. It
//! resolves once: posted up to its amount, voided, or expired. A hold that is past its expiry holds nothing, even before a worker
//! says so.

use tarn_protocol::ids::{HoldId, InstanceId, TenantId};
use tarn_protocol::units::Timestamp;

use crate::money::Micros;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldTerms {
    pub id: HoldId,
    pub tenant_id: TenantId,
    pub instance_id: InstanceId,
    pub amount: Micros,
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldState {
    Pending,
    /// Became a charge of `amount`, at most the hold's.
    Posted {
        amount: Micros,
        at: Timestamp,
    },
    Voided {
        at: Timestamp,
    },
    Expired {
        at: Timestamp,
    },
}

impl HoldState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Posted { .. } => "posted",
            Self::Voided { .. } => "voided",
            Self::Expired { .. } => "expired",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    terms: HoldTerms,
    state: HoldState,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHold {
    #[error("a hold of less than nothing")]
    Negative,
    #[error("hold {0} is resolved already")]
    Resolved(HoldId),
    #[error("hold {0} has expired")]
    Expired(HoldId),
    #[error("hold {0} has not expired yet")]
    NotExpired(HoldId),
    #[error("hold {0} covers less")]
    ExceedsHold(HoldId),
}

impl Hold {
    pub fn new(terms: HoldTerms) -> Result<Self, InvalidHold> {
        Self::from_stored(terms, HoldState::Pending)
    }

    pub fn from_stored(terms: HoldTerms, state: HoldState) -> Result<Self, InvalidHold> {
        match state {
            _ if terms.amount < Micros::ZERO => Err(InvalidHold::Negative),
            HoldState::Posted { amount, .. } if amount < Micros::ZERO || amount > terms.amount => {
                Err(InvalidHold::ExceedsHold(terms.id))
            }
            _ => Ok(Self { terms, state }),
        }
    }

    /// What it keeps back at `at`.
    pub fn holding(&self, at: Timestamp) -> Micros {
        let pending = self.state == HoldState::Pending && at < self.terms.expires_at;
        if pending { self.terms.amount } else { Micros::ZERO }
    }

    pub fn post(self, amount: Micros, at: Timestamp) -> Result<Self, InvalidHold> {
        if at >= self.terms.expires_at && self.state == HoldState::Pending {
            return Err(InvalidHold::Expired(self.terms.id));
        }
        self.resolve(HoldState::Posted { amount, at })
    }

    pub fn void(self, at: Timestamp) -> Result<Self, InvalidHold> {
        self.resolve(HoldState::Voided { at })
    }

    pub fn expire(self, at: Timestamp) -> Result<Self, InvalidHold> {
        if at < self.terms.expires_at {
            return Err(InvalidHold::NotExpired(self.terms.id));
        }
        self.resolve(HoldState::Expired { at })
    }

    fn resolve(self, state: HoldState) -> Result<Self, InvalidHold> {
        match self.state {
            HoldState::Pending => Self::from_stored(self.terms, state),
            _ => Err(InvalidHold::Resolved(self.terms.id)),
        }
    }

    pub const fn terms(&self) -> &HoldTerms {
        &self.terms
    }

    pub const fn state(&self) -> HoldState {
        self.state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_resolves_once_and_never_beyond_its_amount() {
        let at = Timestamp::from_micros;
        let pending = Hold::new(HoldTerms {
            id: HoldId::new(at(0), 1),
            tenant_id: TenantId::new(at(0), 1),
            instance_id: InstanceId::new(at(0), 1),
            amount: Micros::new(100),
            expires_at: at(60),
        })
        .unwrap();
        assert_eq!((pending.holding(at(59)), pending.holding(at(60))), (Micros::new(100), Micros::ZERO));
        assert!(pending.clone().post(Micros::new(101), at(1)).is_err());
        assert!(pending.clone().post(Micros::new(1), at(60)).is_err());
        assert!(pending.clone().expire(at(59)).is_err());
        let ends = [
            pending.clone().post(Micros::new(40), at(1)).unwrap(),
            pending.clone().void(at(1)).unwrap(),
            pending.expire(at(60)).unwrap(),
        ];
        for resolved in ends {
            assert_eq!(resolved.holding(at(1)), Micros::ZERO);
            let again = [
                resolved.clone().post(Micros::new(1), at(2)),
                resolved.clone().void(at(2)),
                resolved.clone().expire(at(99)),
            ];
            assert!(again.iter().all(|end| matches!(end, Err(InvalidHold::Resolved(_)))), "{resolved:?}");
        }
    }
}
