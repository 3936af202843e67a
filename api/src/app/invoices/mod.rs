//! Invoices: issued for what was settled, credited for what was given back, printed for people.
//!
//! The question is which settled seconds and which reversals are on no paper yet; `tarn-billing` says what a paper holds, the schema
//! keeps it as it is for ever. Invoices are issued each month by a worker and on demand; credit notes follow every reversal of
//! something that is on an invoice.

pub mod credit;
pub mod issue;
pub mod monthly;
pub mod paper;
pub mod pdf;
