//! The audit: does every stored balance and every stored charge follow from the facts?
//!
//! Facts are rows that nobody computes: the price book, the evidence that hosts sent, the grants that were given, the transfers that
//! were posted. Everything else (entries, running balances, wallets, what is left of a grant, what a segment has settled) is derived
//! here again, and the first row that differs is named with what was expected and what was found. The arithmetic is done here a
//! second time on purpose: an auditor that called settlement's own sums would repeat settlement's own mistakes.
//!
//! Nothing is read here and nothing is kept that grows with the ledger. The caller streams rows of one snapshot into the passes below,
//! in windows of some hundred owners, and closes each window; a window keeps one small state for each of its owners. Order inside a
//! window is stated at each method. No pass relies on how a database collates ids, only on equal ids coming together.
//!
//! | pass | window of | facts | proves |
//! |---|---|---|---|
//! | [`movements`] | tenants | grants, transfers with their entries | M1, accounts that a kind may join, what is left of each grant |
//! | [`reversals`] | (none) | reversals with their originals | M17 |
//! | [`wallets`] | accounts | accounts, pending holds, wallet entries by `seq` | M2: sequence, running balance, balance, held |
//! | [`segments`] | segments | segments, evidence, usage transfers | M4, M6, M7, M10: every charge from the evidence |
//! | [`overlaps`] | (none) | segments by owner and start | M5: no second twice |
//! | [`totals`] | everything | what the passes added up | the ledger sums to zero, no row was passed over |
//!
//! # When something is added
//!
//! * **A transfer kind**: add it to [`TransferKind::joins`](crate::transfer::TransferKind::joins) and to
//!   [`movements::Effect::of`], an exhaustive match that says what the kind does to the grant it names. Nothing else.
//! * **An account kind**: [`AccountKind`](crate::account::AccountKind) alone; totals are kept for each of them.
//! * **Another thing that is billed by time**: give it segments of the same shape, with a meter of its own, and stream them through the
//!   same passes, as disks are. A disk has no evidence of a host: what the control plane witnessed covers all of its window.
//! * **A new derived column**: compare it in the pass that already streams its row, and plant a wrong value in the test over real books
//!   (`every_corruption_is_named`), which has a line for each check.

pub mod difference;
pub mod movements;
pub mod overlaps;
pub mod reversals;
pub mod segments;
mod spans;
pub mod totals;
pub mod wallets;

pub use difference::{Difference, Rule};
pub use totals::{Audited, Counted};

use crate::price::Price;

/// All passes of one audit. Stream into the passes, then [`Auditor::finish`].
#[derive(Debug, Default)]
pub struct Auditor {
    pub movements: movements::Movements,
    pub reversals: reversals::Reversals,
    pub wallets: wallets::Wallets,
    pub segments: segments::Segments,
    pub overlaps: overlaps::Overlaps,
}

impl Auditor {
    /// Begins with the whole price book, in any order.
    pub fn new(prices: impl IntoIterator<Item = Price>) -> Result<Self, Difference> {
        Ok(Self { segments: segments::Segments::new(prices)?, ..Self::default() })
    }

    /// After the last row: what was added up, against itself and against how many rows there are.
    pub fn finish(self, counted: &Counted) -> Result<Audited, Difference> {
        totals::close(self, counted)
    }
}

#[cfg(test)]
mod tests;
