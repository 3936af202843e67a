//! The books as a whole: every tenant's ledger read in one snapshot, page by page, to be audited or exported. Nothing here writes.

pub mod audit;
mod facts;
pub mod journal;
mod pages;
