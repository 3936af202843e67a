//! Reading a table page by page, and saying which row it was when one cannot be read.

use std::fmt::Display;

use tarn_billing::audit::{Difference, Rule};
use tarn_store::StoreError;

/// Rows of one page.
const PAGE: u32 = 5_000;
/// Owners (tenants, accounts, segments) of one window.
pub const WINDOW: u32 = 500;
/// Above every id, in any collation.
pub const LAST: &str = "z";

/// One table on its way through. A page with an unreadable row is read again smaller, until that row is alone.
#[derive(Debug)]
pub struct Pages {
    what: &'static str,
    pub limit: u32,
}

impl Pages {
    pub const fn of(what: &'static str) -> Self {
        Self { what, limit: PAGE }
    }

    /// Of owners, whose state the audit keeps while their rows pass.
    pub const fn of_owners(what: &'static str) -> Self {
        Self { what, limit: WINDOW }
    }

    /// The page, or `None` to read again from the same place.
    pub fn read<T, E>(
        &mut self,
        after: &dyn Display,
        read: Result<Vec<T>, StoreError>,
    ) -> Result<Option<Vec<T>>, E>
    where
        E: From<StoreError> + From<Difference>,
    {
        match read {
            Ok(rows) => Ok(Some(rows)),
            Err(StoreError::Corrupt(bad)) if self.limit == 1 => {
                let row = format!("{} after {after}", self.what);
                let found = format!("{}: {}", bad.field, bad.reason);
                Err(Difference::new(Rule::Readable, row, "stored values", "values of their types", found)
                    .into())
            }
            Err(StoreError::Corrupt(_)) => {
                self.limit = self.limit.div_ceil(8);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether more may follow.
    pub fn full<T>(&self, rows: &[T]) -> bool {
        u32::try_from(rows.len()).is_ok_and(|len| len >= self.limit)
    }
}
