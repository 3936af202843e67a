//! Reversals: never more than their original, and to where it was taken from.

use tarn_protocol::ids::{AccountId, GrantId, SegmentId, TransferId};

use super::difference::{Difference, Rule, same, shown};
use crate::money::Micros;
use crate::transfer::TransferKind;

/// One side of the comparison: the original, or the reversal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovementFact {
    pub id: TransferId,
    pub kind: TransferKind,
    pub debit: AccountId,
    pub credit: AccountId,
    pub amount: Micros,
    pub segment_id: Option<SegmentId>,
    pub grant_id: Option<GrantId>,
}

/// A stream of all reversals, those of one original together.
#[derive(Debug, Default)]
pub struct Reversals {
    original: Option<TransferId>,
    reversed: i128,
    pub(super) seen: u64,
    /// Of usage charges.
    pub(super) micros: i128,
}

impl Reversals {
    pub fn reversal(&mut self, original: &MovementFact, reversal: &MovementFact) -> Result<(), Difference> {
        if self.original.as_ref() != Some(&original.id) {
            (self.original, self.reversed) = (Some(original.id.clone()), 0);
        }
        let row = || format!("transfer {}", reversal.id);
        same(Rule::Reversal, row, "kind of what it reverses", TransferKind::Usage, original.kind)?;
        same(Rule::Reversal, row, "account that it gives back to", &original.debit, &reversal.credit)?;
        same(Rule::Reversal, row, "account that it takes from", &original.credit, &reversal.debit)?;
        let ids = |fact: &MovementFact| (shown(fact.grant_id.as_ref()), shown(fact.segment_id.as_ref()));
        let ((grant, segment), (found_grant, found_segment)) = (ids(original), ids(reversal));
        same(Rule::Reversal, row, "bucket charged", grant, found_grant)?;
        same(Rule::Reversal, row, "segment", segment, found_segment)?;
        self.reversed += i128::from(reversal.amount.get());
        self.micros += i128::from(reversal.amount.get());
        self.seen += 1;
        if self.reversed > i128::from(original.amount.get()) {
            let most = format!("at most {} micros", original.amount.get());
            return Err(Difference::new(Rule::Reversal, row(), "reversed in all", most, self.reversed));
        }
        Ok(())
    }
}
