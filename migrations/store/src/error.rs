//! Why the store refused, the same for both engines. Not found is `None`, a lost compare-and-set is `false`: neither is an error.

use sqlx::error::DatabaseError;
use tarn_rows::BadValue;

use crate::address::InvalidAddress;
use crate::constraint::Constraint;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("not unique: {0:?}")]
    Unique(Constraint),
    #[error("refers to a row that is not there")]
    ForeignKey,
    /// A `CHECK` or `NOT NULL` of the schema.
    #[error("a value that the table refuses: {constraint}")]
    Check { constraint: String },
    /// A row that is written once: a transfer, an entry, a price.
    #[error("a row that never changes: {rule}")]
    Immutable { rule: String },
    /// Lost to other transactions more often than it was tried again, or waited too long for a lock.
    #[error("the database is busy")]
    Busy(#[source] sqlx::Error),
    #[error("the database cannot be reached")]
    Unavailable(#[source] sqlx::Error),
    /// The connection broke while a commit was on its way: it happened or it did not. Ask by id.
    #[error("the outcome of a commit is unknown")]
    OutcomeUnknown(#[source] sqlx::Error),
    /// The work went on after a statement failed, and would have committed half of what it meant.
    #[error("a statement of this transaction failed before its commit")]
    Poisoned,
    /// A row changed between reading and writing it: made by [`crate::Tx::stale`], which has the transaction tried again.
    #[error("a row changed meanwhile")]
    Stale,
    /// The process is shutting down.
    #[error("the transaction's task was ended")]
    Ended,
    #[error("a stored row is corrupt")]
    Corrupt(#[source] BadValue),
    #[error("a value that no column holds")]
    Unstorable(#[source] BadValue),
    #[error("a query failed")]
    Query(#[source] sqlx::Error),
    #[error("a migration failed")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error(transparent)]
    Address(#[from] InvalidAddress),
}

impl StoreError {
    /// Whether this is that uniqueness.
    pub fn breaks(&self, constraint: Constraint) -> bool {
        matches!(self, Self::Unique(broken) if *broken == constraint)
    }

    /// Whether the same transaction, tried again from its start, may pass.
    pub(crate) fn lost_a_race(&self) -> bool {
        matches!(self, Self::Busy(_))
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as E;
        match error {
            E::Encode(source) => match source.downcast::<BadValue>() {
                Ok(bad) => Self::Unstorable(*bad),
                Err(source) => Self::Query(E::Encode(source)),
            },
            E::Decode(source) => match source.downcast::<BadValue>() {
                Ok(bad) => Self::Corrupt(*bad),
                Err(source) => Self::Query(E::Decode(source)),
            },
            E::Database(refusal) => refused(refusal),
            E::PoolTimedOut | E::Io(_) | E::Tls(_) | E::Protocol(_) | E::PoolClosed | E::WorkerCrashed => {
                Self::Unavailable(error)
            }
            other => Self::Query(other),
        }
    }
}

fn refused(refusal: Box<dyn DatabaseError>) -> StoreError {
    let code = refusal.code().unwrap_or_default().into_owned();
    let sqlite = refusal.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some();
    if sqlite { refused_by_sqlite(refusal, &code) } else { refused_by_postgres(refusal, &code) }
}

/// <https://www.sqlite.org/rescode.html>: the low byte is the primary code.
fn refused_by_sqlite(refusal: Box<dyn DatabaseError>, code: &str) -> StoreError {
    let code: i32 = code.parse().unwrap_or(0);
    let text = refusal.message().to_owned();
    let after_colon = text.split_once(": ").map_or(text.as_str(), |(_, rest)| rest);
    match (code & 0xff, code) {
        (19, 2067 | 1555) => match Constraint::of_sqlite(after_colon) {
            Some(constraint) => StoreError::Unique(constraint),
            None => StoreError::Query(sqlx::Error::Database(refusal)),
        },
        (19, 787) => StoreError::ForeignKey,
        (19, 275 | 1299) => StoreError::Check { constraint: after_colon.to_owned() },
        (19, 1811) => match Constraint::of_sqlite(&text) {
            Some(constraint) => StoreError::Unique(constraint),
            None => StoreError::Immutable { rule: text },
        },
        (5 | 6, _) => StoreError::Busy(sqlx::Error::Database(refusal)),
        // I/O error, disk full, cannot open.
        (10 | 13 | 14, _) => StoreError::Unavailable(sqlx::Error::Database(refusal)),
        _ => StoreError::Query(sqlx::Error::Database(refusal)),
    }
}

/// <https://www.postgresql.org/docs/current/errcodes-appendix.html>
fn refused_by_postgres(refusal: Box<dyn DatabaseError>, code: &str) -> StoreError {
    let name = refusal.constraint().unwrap_or_default().to_owned();
    match code {
        // unique_violation, exclusion_violation
        "23505" | "23P01" => match Constraint::of_postgres(&name) {
            Some(constraint) => StoreError::Unique(constraint),
            None => StoreError::Query(sqlx::Error::Database(refusal)),
        },
        "23503" => StoreError::ForeignKey,
        // check_violation; not_null_violation names the column, not a constraint
        "23514" => StoreError::Check { constraint: name },
        "23502" => StoreError::Check { constraint: refusal.message().to_owned() },
        "23001" => StoreError::Immutable { rule: name },
        // serialization_failure, deadlock_detected, lock_not_available
        "40001" | "40P01" | "55P03" => StoreError::Busy(sqlx::Error::Database(refusal)),
        // query_canceled: the statement took longer than any should
        "57014" => StoreError::Unavailable(sqlx::Error::Database(refusal)),
        // connection exceptions, too many connections, shutdown
        _ if code.starts_with("08") || code.starts_with("53") || code.starts_with("57P") => {
            StoreError::Unavailable(sqlx::Error::Database(refusal))
        }
        _ => StoreError::Query(sqlx::Error::Database(refusal)),
    }
}
