//! Refunds: which reversals give back part of what a customer was charged.
//!
//! A refund goes back to the buckets charged, newest charge first, so that cash, which is drawn last, comes back first. No original is
//! ever reversed beyond its amount (M17), and promotional credit never becomes cash, because a reversal only swaps the accounts of its
//! original. The store keeps how much of each original is reversed in a row with a check, so two refunds that race cannot both win.

use tarn_protocol::units::Timestamp;

use crate::account::AccountKind;
use crate::money::{Micros, OutOfRange};
use crate::transfer::{InvalidTransfer, Transfer, reversal_id};

/// A charge, and what earlier refunds took back of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charged {
    pub transfer: Transfer,
    pub reversed: Micros,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRefund {
    #[error("a refund of nothing")]
    NotPositive,
    #[error("{wanted} wanted, {left} of this charge is left to refund")]
    ExceedsCharge { wanted: Micros, left: Micros },
    #[error(transparent)]
    Transfer(#[from] InvalidTransfer),
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
}

impl Charged {
    fn left(&self) -> Micros {
        Micros::new((self.transfer.amount().get() - self.reversed.get()).max(0))
    }
}

/// What is left to refund. `owed` is what the tenant still owes: a charge on the receivable that was paid meanwhile is not unpaid again.
pub fn refundable(charges: &[Charged], owed: Micros) -> Result<Micros, OutOfRange> {
    let (receivable, wallets): (Vec<&Charged>, Vec<&Charged>) =
        charges.iter().partition(|charge| charge.transfer.debit().kind() == AccountKind::Receivable);
    let on_credit = Micros::checked_sum(receivable.into_iter().map(Charged::left))?.min(owed);
    Micros::checked_sum(wallets.into_iter().map(Charged::left))?.checked_add(on_credit)
}

/// The reversals of a refund of `amount` (of all that is left, if `None`), in the order in which they are posted. `refund` names it:
/// planned twice, it gives the same ids.
pub fn plan(
    charges: &[Charged],
    amount: Option<Micros>,
    owed: Micros,
    refund: &str,
    at: Timestamp,
) -> Result<Vec<Transfer>, InvalidRefund> {
    let left = refundable(charges, owed)?;
    let wanted = amount.unwrap_or(left);
    if wanted <= Micros::ZERO {
        return Err(InvalidRefund::NotPositive);
    }
    if wanted > left {
        return Err(InvalidRefund::ExceedsCharge { wanted, left });
    }
    let mut newest_first: Vec<&Charged> = charges.iter().collect();
    newest_first.sort_by(|one, other| {
        let cash = |charge: &Charged| charge.transfer.debit().kind() == AccountKind::WalletCash;
        let key = |charge: &Charged| (charge.transfer.at(), cash(charge), charge.transfer.id().clone());
        key(other).cmp(&key(one))
    });
    let (mut wanted, mut owed, mut reversals) = (wanted, owed, Vec::new());
    for charge in newest_first {
        let mut part = wanted.min(charge.left());
        if charge.transfer.debit().kind() == AccountKind::Receivable {
            part = part.min(owed);
            owed = owed.checked_sub(part)?;
        }
        if part > Micros::ZERO {
            wanted = wanted.checked_sub(part)?;
            let id = reversal_id(charge.transfer.id(), refund, at);
            reversals.push(charge.transfer.reversal(id, part, charge.reversed, at)?);
        }
    }
    Ok(reversals)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;
    use crate::transfer::{Subject, TransferKind};
    use proptest::prelude::*;
    use tarn_protocol::ids::{GrantId, TenantId, TransferId};

    fn charge(number: u128, kind: AccountKind, amount: i64) -> Charged {
        let at = Timestamp::from_micros(i64::try_from(number).unwrap());
        let tenant = TenantId::new(Timestamp::from_micros(0), 1);
        let accounts = (
            Account::new(kind, Some(&tenant)).unwrap(),
            Account::new(AccountKind::RevenueGpu, None).unwrap(),
        );
        let subject = Subject { grant_id: Some(GrantId::new(at, number)), ..Subject::default() };
        let id = TransferId::new(at, number);
        let transfer = Transfer::new(id, TransferKind::Usage, accounts, Micros::new(amount), subject, at);
        Charged { transfer: transfer.unwrap(), reversed: Micros::ZERO }
    }

    const BUCKETS: [AccountKind; 3] =
        [AccountKind::WalletCash, AccountKind::WalletPromo, AccountKind::Receivable];

    proptest! {
        /// Any sequence of refunds: no original is reversed beyond its amount, and each part returns to the bucket it came from.
        #[test]
        fn m17_reversals_never_exceed_their_original_and_keep_its_bucket(
            charges in prop::collection::vec((0usize..3, 1i64..1_000), 1..8),
            wishes in prop::collection::vec(prop::option::of(1i64..2_000), 1..8),
            owed in 0i64..500,
        ) {
            let mut charges: Vec<Charged> =
                charges.iter().zip(1u128..).map(|((kind, amount), n)| charge(n, BUCKETS[*kind], *amount)).collect();
            let mut owed = Micros::new(owed);
            for (number, wish) in wishes.iter().enumerate() {
                let at = Timestamp::from_micros(1_000_000 + i64::try_from(number).unwrap());
                let left = refundable(&charges, owed).unwrap();
                match plan(&charges, wish.map(Micros::new), owed, &number.to_string(), at) {
                    Ok(reversals) => {
                        let sum = Micros::checked_sum(reversals.iter().map(Transfer::amount)).unwrap();
                        prop_assert_eq!(sum, wish.map_or(left, Micros::new));
                        for reversal in &reversals {
                            let original = charges.iter_mut()
                                .find(|charge| Some(charge.transfer.id()) == reversal.subject().reverses.as_ref());
                            let original = original.unwrap();
                            prop_assert_eq!(reversal.credit(), original.transfer.debit());
                            prop_assert_eq!(&reversal.subject().grant_id, &original.transfer.subject().grant_id);
                            original.reversed = original.reversed.checked_add(reversal.amount()).unwrap();
                            prop_assert!(original.reversed <= original.transfer.amount());
                            if reversal.credit().kind() == AccountKind::Receivable {
                                owed = owed.checked_sub(reversal.amount()).unwrap();
                                prop_assert!(owed >= Micros::ZERO);
                            }
                        }
                    }
                    Err(InvalidRefund::ExceedsCharge { wanted, left: told }) => {
                        prop_assert!(told == left && wanted > left);
                    }
                    Err(InvalidRefund::NotPositive) => prop_assert!(wish.is_none() && left == Micros::ZERO),
                    Err(other) => prop_assert!(false, "{other}"),
                }
            }
        }
    }

    #[test]
    fn m17_cash_is_never_made_of_promotional_credit() {
        let promo = charge(1, AccountKind::WalletPromo, 10);
        let parts = plan(&[promo], None, Micros::ZERO, "r", Timestamp::from_micros(9)).unwrap();
        assert_eq!((parts.len(), parts[0].credit().kind()), (1, AccountKind::WalletPromo));
        assert!(
            parts[0]
                .payout(TransferId::new(parts[0].at(), 1), Micros::new(1), Micros::ZERO, parts[0].at())
                .is_err()
        );
    }
}
