//! One portable SQL text for both engines, a file for each noun.
//!
//! Both engine crates compile these very files (`#[path]`) with their own `Conn`, so `query!` proves each statement against SQLite
//! and against PostgreSQL. A function is one statement, or the few that only make sense together. Rules that keep the text portable:
//! ids, JSON and words are TEXT, instants and amounts BIGINT; `COUNT(*) AS "n!: i64"`; sums are `CAST(COALESCE(SUM(x), 0) AS BIGINT)`;
//! columns are listed, never `*` (a running PostgreSQL connection breaks on a column added under it); a lost compare-and-set is
//! `false` or `None`, never an error. Functions about a tenant's rows take the scope right after the connection; those without one
//! are for workers and operators, and say so.

use tarn_rows::Stored;

pub use super::Conn;

pub mod accounts;
pub mod alerts;
pub mod api_keys;
pub mod audit;
pub mod boots;
pub mod brake;
pub mod caps;
pub mod claims;
pub mod counts;
pub mod credit_requests;
pub mod evidence;
pub mod fleet;
pub mod gpus;
pub mod grants;
pub mod holds;
pub mod hosts;
pub mod idempotency;
pub mod instance_events;
pub mod instances;
pub mod invoices;
pub mod join_tokens;
pub mod journal;
pub mod leased;
pub mod leases;
pub mod ledger;
pub mod links;
pub mod notices;
pub mod offers;
pub mod operator_log;
pub mod payment_watch;
pub mod plans;
pub mod prices;
pub mod refunds;
pub mod segments;
pub mod sessions;
pub mod sla;
pub mod ssh_keys;
pub mod statements;
pub mod storage;
pub mod top_ups;
pub mod wallet;

pub type Result<T> = sqlx::Result<T>;

/// What the columns will hold; a value that no column can hold is refused before any SQL runs.
pub(crate) fn put<T: Stored>(value: &T) -> Result<T::Raw> {
    value.to_raw().map_err(|bad| sqlx::Error::Encode(Box::new(bad)))
}

/// The typed value of a row; a corrupt row is an error.
fn take<T: Stored>(raw: T::Raw) -> Result<T> {
    T::from_raw(raw).map_err(|bad| sqlx::Error::Decode(Box::new(bad)))
}

fn take_all<T: Stored>(raws: Vec<T::Raw>) -> Result<Vec<T>> {
    raws.into_iter().map(take).collect()
}
