//! What takes a transfer back: never more than it moved, and by the way on which it came.
//!
//! A charge is given back to the bucket charged. A top-up is paid out of the wallet that it filled. A payout that did not arrive is given
//! back like a charge; as much less of its top-up is then paid out.

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
    /// What was taken back of this one in turn.
    pub undone: Micros,
}

/// A stream of everything that takes something back, what takes back one original together.
#[derive(Debug, Default)]
pub struct Reversals {
    original: Option<TransferId>,
    reversed: i128,
    pub(super) seen: u64,
}

impl Reversals {
    pub fn reversal(&mut self, original: &MovementFact, reversal: &MovementFact) -> Result<(), Difference> {
        if self.original.as_ref() != Some(&original.id) {
            (self.original, self.reversed) = (Some(original.id.clone()), 0);
        }
        let row = || format!("transfer {}", reversal.id);
        match (reversal.kind, original.kind) {
            (TransferKind::Reversal, TransferKind::Usage | TransferKind::Payout) => {
                let (given, found) = (&original.debit, &reversal.credit);
                same(Rule::Reversal, row, "account that it gives back to", given, found)?;
            }
            (TransferKind::Payout, TransferKind::TopUp) => {}
            (kind, other) => {
                let wanted = format!("one that a {kind} may take back");
                return Err(Difference::new(Rule::Reversal, row(), "kind of its original", wanted, other));
            }
        }
        same(Rule::Reversal, row, "account that it takes from", &original.credit, &reversal.debit)?;
        let ids = |fact: &MovementFact| (shown(fact.grant_id.as_ref()), shown(fact.segment_id.as_ref()));
        let ((grant, segment), (found_grant, found_segment)) = (ids(original), ids(reversal));
        same(Rule::Reversal, row, "bucket charged", grant, found_grant)?;
        same(Rule::Reversal, row, "segment", segment, found_segment)?;
        self.reversed += i128::from(reversal.amount.get()) - i128::from(reversal.undone.get());
        self.seen += 1;
        if self.reversed > i128::from(original.amount.get()) {
            let most = format!("at most {} micros", original.amount.get());
            return Err(Difference::new(Rule::Reversal, row(), "reversed in all", most, self.reversed));
        }
        Ok(())
    }
}
