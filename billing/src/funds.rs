//! Funds: all of one tenant's grants, less what holds keep back, as one thing to draw from.

use tarn_protocol::ids::GrantId;
use tarn_protocol::units::Timestamp;

use crate::account::AccountKind;
use crate::grant::Grant;
use crate::money::{Micros, OutOfRange};

/// One tenant's grants in draw order, and the sum of its pending holds. A value: a draw returns the funds after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Funds {
    grants: Vec<Grant>,
    held: Micros,
}

/// A part of a draw: so much from one grant, and what that leaves in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draw {
    /// The grant before this draw; its `remaining` guards the update.
    pub before: Grant,
    pub amount: Micros,
    pub remaining_after: Micros,
}

impl Draw {
    pub const fn grant_id(&self) -> &GrantId {
        self.before.id()
    }
}

/// A draw that the funds do not cover; nothing was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} wanted, {available} available")]
pub struct Shortfall {
    pub wanted: Micros,
    pub available: Micros,
}

impl Funds {
    /// `grants` in any order, all of one tenant; `held` is the sum of pending holds that have not expired.
    pub fn new(mut grants: Vec<Grant>, held: Micros) -> Result<Self, OutOfRange> {
        Micros::checked_sum(grants.iter().map(Grant::remaining))?;
        grants.sort_by(|one, other| one.draw_key().cmp(&other.draw_key()));
        Ok(Self { grants, held: held.max(Micros::ZERO) })
    }

    /// In draw order, the empty and the expired included.
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    pub const fn held(&self) -> Micros {
        self.held
    }

    /// What can be spent at `at`: grants not expired, less holds; never below zero.
    pub fn available(&self, at: Timestamp) -> Micros {
        let spendable =
            self.grants.iter().filter(|grant| grant.spendable(at)).map(|grant| grant.remaining().get());
        Micros::new((spendable.sum::<i64>() - self.held.get()).max(0))
    }

    /// Draws `amount` whole, in draw order, or nothing.
    pub fn draw(&self, amount: Micros, at: Timestamp) -> Result<(Vec<Draw>, Self), Shortfall> {
        let available = self.available(at);
        if amount > available {
            return Err(Shortfall { wanted: amount, available });
        }
        let mut after = self.clone();
        let mut wanted = amount.max(Micros::ZERO);
        let mut draws = Vec::new();
        for grant in after.grants.iter_mut().filter(|grant| grant.spendable(at)) {
            let part = wanted.min(grant.remaining());
            if part > Micros::ZERO {
                let before = grant.clone();
                grant.take(part);
                wanted = Micros::new(wanted.get() - part.get());
                draws.push(Draw { before, amount: part, remaining_after: grant.remaining() });
            }
        }
        debug_assert_eq!(wanted, Micros::ZERO, "available covers the draw");
        Ok((draws, after))
    }

    /// Which wallet accounts keep back `amount` for a hold: the money that is drawn last, so that draws of what is available never
    /// reach it. Whole or nothing.
    pub fn reserve(&self, amount: Micros, at: Timestamp) -> Result<Vec<(AccountKind, Micros)>, Shortfall> {
        let available = self.available(at);
        if amount > available {
            return Err(Shortfall { wanted: amount, available });
        }
        // Older holds keep the very end; this one takes what comes before it.
        let (mut older, mut wanted) = (self.held, amount.max(Micros::ZERO));
        let mut parts: Vec<(AccountKind, Micros)> = Vec::new();
        for grant in self.grants.iter().rev().filter(|grant| grant.spendable(at)) {
            let taken = older.min(grant.remaining());
            older = Micros::new(older.get() - taken.get());
            let part = wanted.min(Micros::new(grant.remaining().get() - taken.get()));
            wanted = Micros::new(wanted.get() - part.get());
            let account = grant.terms().kind.wallet();
            match parts.last_mut() {
                _ if part == Micros::ZERO => {}
                Some((kind, sum)) if *kind == account => *sum = Micros::new(sum.get() + part.get()),
                _ => parts.push((account, part)),
            }
        }
        debug_assert_eq!(wanted, Micros::ZERO, "available covers the hold");
        Ok(parts)
    }

    /// The first instant at which a grant with money in it expires, or has expired.
    pub fn first_expiry(&self) -> Option<Timestamp> {
        self.next_expiry(Timestamp::from_micros(i64::MIN))
    }

    /// The same with `grant` as it is now.
    pub(crate) fn with(mut self, grant: &Grant) -> Self {
        self.grants
            .iter_mut()
            .filter(|known| known.id() == grant.id())
            .for_each(|known| *known = grant.clone());
        self
    }

    /// The next instant after `at` at which a grant with money in it expires.
    pub fn next_expiry(&self, at: Timestamp) -> Option<Timestamp> {
        let funded = self.grants.iter().filter(|grant| grant.remaining() > Micros::ZERO);
        funded.filter_map(|grant| grant.terms().expires_at).filter(|expires_at| *expires_at > at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grant::{GrantKind, GrantTerms};
    use proptest::prelude::*;
    use tarn_protocol::ids::TenantId;

    fn grant(number: u128, kind: GrantKind, priority: i64, amount: i64, expires_at: Option<i64>) -> Grant {
        Grant::new(GrantTerms {
            id: GrantId::new(Timestamp::from_micros(0), number),
            tenant_id: TenantId::new(Timestamp::from_micros(0), 1),
            kind,
            priority,
            amount: Micros::new(amount),
            granted_at: Timestamp::from_micros(0),
            expires_at: expires_at.map(Timestamp::from_micros),
        })
        .unwrap()
    }

    #[test]
    fn m13_draw_order_is_credit_priority_expiry_id() {
        let grants = vec![
            grant(1, GrantKind::Cash, -9, 100, None),
            grant(2, GrantKind::Promo, 1, 10, Some(50)),
            grant(4, GrantKind::Trial, 0, 10, None),
            grant(5, GrantKind::Trial, 0, 10, Some(90)),
            grant(3, GrantKind::Trial, 0, 10, None),
        ];
        let funds = Funds::new(grants, Micros::ZERO).unwrap();
        let (draws, after) = funds.draw(Micros::new(45), Timestamp::from_micros(10)).unwrap();
        let order: Vec<(GrantId, i64)> =
            draws.iter().map(|draw| (draw.grant_id().clone(), draw.amount.get())).collect();
        let id = |number| GrantId::new(Timestamp::from_micros(0), number);
        assert_eq!(order, [(id(5), 10), (id(3), 10), (id(4), 10), (id(2), 10), (id(1), 5)]);
        assert_eq!(after.available(Timestamp::from_micros(10)), Micros::new(95));
    }

    #[test]
    fn m13_expired_credit_is_never_spent() {
        let funds = Funds::new(vec![grant(1, GrantKind::Promo, 0, 10, Some(50))], Micros::ZERO).unwrap();
        assert_eq!(funds.available(Timestamp::from_micros(49)), Micros::new(10));
        assert_eq!(funds.available(Timestamp::from_micros(50)), Micros::ZERO);
        let refused = funds.draw(Micros::new(1), Timestamp::from_micros(50));
        assert_eq!(refused, Err(Shortfall { wanted: Micros::new(1), available: Micros::ZERO }));
        let (transfer, spent) = funds.grants()[0].expiry(Timestamp::from_micros(50)).unwrap().unwrap();
        assert_eq!((transfer.amount(), spent.remaining()), (Micros::new(10), Micros::ZERO));
        assert_eq!(funds.grants()[0].expiry(Timestamp::from_micros(49)), Ok(None));
        assert_eq!(spent.expiry(Timestamp::from_micros(51)), Ok(None));
    }

    #[test]
    fn a_hold_keeps_what_is_drawn_last() {
        let at = Timestamp::from_micros(10);
        let grants = || vec![grant(1, GrantKind::Trial, 0, 50, None), grant(2, GrantKind::Cash, 0, 30, None)];
        let reserve = |held: i64, amount: i64| {
            Funds::new(grants(), Micros::new(held)).unwrap().reserve(Micros::new(amount), at)
        };
        let (cash, promo) = (AccountKind::WalletCash, AccountKind::WalletPromo);
        assert_eq!(reserve(0, 30), Ok(vec![(cash, Micros::new(30))]));
        assert_eq!(reserve(0, 40), Ok(vec![(cash, Micros::new(30)), (promo, Micros::new(10))]));
        assert_eq!(reserve(20, 15), Ok(vec![(cash, Micros::new(10)), (promo, Micros::new(5))]));
        assert_eq!(reserve(40, 40), Ok(vec![(promo, Micros::new(40))]));
        assert!(reserve(40, 41).is_err());
    }

    proptest! {
        #[test]
        fn m13_a_draw_is_whole_or_nothing(
            amounts in prop::collection::vec((1i64..1_000, prop::option::of(1i64..100)), 0..6),
            held in 0i64..500, wanted in 0i64..4_000, at in 0i64..100,
        ) {
            let grants = amounts.iter().zip(1u128..).map(|((amount, expiry), number)| {
                grant(number, GrantKind::Promo, 0, *amount, *expiry)
            });
            let funds = Funds::new(grants.collect(), Micros::new(held)).unwrap();
            let (at, wanted) = (Timestamp::from_micros(at), Micros::new(wanted));
            let available = funds.available(at);
            match funds.draw(wanted, at) {
                Ok((draws, after)) => {
                    prop_assert_eq!(Micros::checked_sum(draws.iter().map(|draw| draw.amount)), Ok(wanted));
                    prop_assert_eq!(available.checked_sub(wanted), Ok(after.available(at)));
                    prop_assert!(draws.iter().all(|draw| draw.before.spendable(at)));
                }
                Err(shortfall) => prop_assert!(shortfall.available < wanted),
            }
        }
    }
}
