//! One page of a list, by keyset: what comes after the last id seen, never an offset.

use std::fmt;

/// Rows after `after` (from the start if `None`), at most `limit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<'id, Id> {
    pub after: Option<&'id Id>,
    pub limit: u32,
}

impl<'id, Id: fmt::Display> Page<'id, Id> {
    pub const fn first(limit: u32) -> Self {
        Self { after: None, limit }
    }

    pub const fn after(after: &'id Id, limit: u32) -> Self {
        Self { after: Some(after), limit }
    }

    /// For lists that ascend: every id is above the empty text.
    pub fn above(&self) -> String {
        self.after.map_or_else(String::new, Id::to_string)
    }

    /// For lists that descend: every id is below `z`, in any collation.
    pub fn below(&self) -> String {
        self.after.map_or_else(|| "z".to_owned(), Id::to_string)
    }

    pub fn limit(&self) -> i64 {
        i64::from(self.limit)
    }
}
