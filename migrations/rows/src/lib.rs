//! What the tables hold: one row type a table, shared by both engines.
//!
//! A row is typed: ids, instants, amounts and enums, never bare strings and integers. Its raw twin (`HostRaw` of `HostRow`) is what
//! `query_as!` fills; [`Stored`] goes between the two and refuses what does not fit, so a corrupt row is an error where it is read
//! and never a wrong id somewhere else. Rows carry no rules: those live in `billing` and `provisioner`.

mod stored;

pub mod accounts;
pub mod alerts;
pub mod api_keys;
pub mod audit;
pub mod boots;
pub mod brake;
pub mod caps;
pub mod claims;
pub mod counts;
pub mod gpus;
pub mod hosts;
pub mod idempotency;
pub mod instances;
pub mod invoices;
pub mod leases;
pub mod ledger;
pub mod links;
pub mod notices;
pub mod offers;
pub mod operators;
pub mod page;
pub mod payments;
pub mod plans;
pub mod reports;
pub mod scope;
pub mod secrets;
pub mod segments;
pub mod sessions;
pub mod sla;
pub mod storage;
pub mod wallet;

pub use page::Page;
pub use scope::TenantScope;
pub use stored::{BadValue, Json, Stored};
