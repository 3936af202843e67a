//! What an audit found wrong: which rule, which row, what was expected there and what is.

use std::fmt;

use serde::Serialize;

/// The rule that a row breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// A stored value that its type refuses.
    Readable,
    /// A price that does not follow the one before it.
    PriceBook,
    /// A transfer between accounts that its kind may not join, or of another tenant.
    Transfer,
    /// M1: two entries that sum to zero.
    EntriesBalance,
    /// What is left of a grant is what was given less what was drawn.
    Grant,
    /// M17: reversals never exceed their original, and go back to the bucket charged.
    Reversal,
    /// An account is named by what it is.
    Account,
    /// M2: sequence without a gap, running balance.
    RunningBalance,
    /// M2: balance = sum of entries = last running balance.
    WalletBalance,
    /// What is held is what pending holds hold.
    Hold,
    /// M10: a segment bills at the price that was in force.
    SegmentPrice,
    /// M6, M7: proven seconds are what the evidence proves.
    Evidence,
    /// M4: charged is the cumulative floor of proven seconds.
    Charge,
    /// M5: no second twice.
    Overlap,
    /// Everything sums to zero.
    Total,
    /// Every row was seen.
    Complete,
}

impl Rule {
    pub const ALL: [Self; 16] = [
        Self::Readable,
        Self::PriceBook,
        Self::Transfer,
        Self::EntriesBalance,
        Self::Grant,
        Self::Reversal,
        Self::Account,
        Self::RunningBalance,
        Self::WalletBalance,
        Self::Hold,
        Self::SegmentPrice,
        Self::Evidence,
        Self::Charge,
        Self::Overlap,
        Self::Total,
        Self::Complete,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Readable => "readable",
            Self::PriceBook => "price_book",
            Self::Transfer => "transfer",
            Self::EntriesBalance => "entries_balance",
            Self::Grant => "grant",
            Self::Reversal => "reversal",
            Self::Account => "account",
            Self::RunningBalance => "running_balance",
            Self::WalletBalance => "wallet_balance",
            Self::Hold => "hold",
            Self::SegmentPrice => "segment_price",
            Self::Evidence => "evidence",
            Self::Charge => "charge",
            Self::Overlap => "overlap",
            Self::Total => "total",
            Self::Complete => "complete",
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One row that does not follow from the facts. Its `Display` is one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{rule}: {row}: {what}: expected {expected}, found {found}")]
pub struct Difference {
    pub rule: Rule,
    /// Table and key, as `transfer trf_…`.
    pub row: String,
    pub what: &'static str,
    pub expected: String,
    pub found: String,
}

impl Difference {
    pub fn new(
        rule: Rule,
        row: impl fmt::Display,
        what: &'static str,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Self {
        // Words of a database may hold anything; a difference stays one line.
        let line = |text: String| text.replace(char::is_control, " ");
        Self {
            rule,
            row: line(row.to_string()),
            what,
            expected: line(expected.to_string()),
            found: line(found.to_string()),
        }
    }
}

/// `Ok` if both are equal.
pub(crate) fn same<T: PartialEq + fmt::Display>(
    rule: Rule,
    row: impl FnOnce() -> String,
    what: &'static str,
    expected: T,
    found: T,
) -> Result<(), Difference> {
    if expected == found { Ok(()) } else { Err(Difference::new(rule, row(), what, expected, found)) }
}

/// An optional value in a difference.
pub(crate) fn shown<T: fmt::Display>(value: Option<&T>) -> String {
    value.map_or_else(|| "nothing".to_owned(), T::to_string)
}
