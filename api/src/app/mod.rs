//! Use cases that cross domains: each one function, one transaction, one error enum.
//!
//! A handler extracts, calls one of these and converts; nothing here knows HTTP. Time and entropy come from [`crate::state::AppState`].

pub mod act;
pub mod agents;
pub mod books;
pub mod brake;
pub mod fleet;
pub mod instances;
pub mod invoices;
pub mod metering;
pub mod money;
pub mod offers;
pub mod once;
pub mod operators;
pub mod people;
pub mod reports;
