//! Where the database is, and how each engine is set up.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection as _, PgPool, SqlitePool};

/// Statements kept prepared on each connection: more than there are queries.
const STATEMENTS_MAX: usize = 400;
/// Read connections of SQLite; reads never wait for the writer.
const SQLITE_READERS: u32 = 4;
/// Rows that SQLite's thread may be ahead of who reads them: the default of 50 wakes one or the other every few rows of a long reading.
const SQLITE_ROWS_AHEAD: usize = 1_000;
/// Connections of each of PostgreSQL's two pools.
const POSTGRES_CONNECTIONS: u32 = 8;
/// Longest wait for a lock of another SQLite process, and for a free connection.
const BUSY: Duration = Duration::from_secs(5);
const ACQUIRE: Duration = Duration::from_secs(10);
/// A connection idle for longer is asked whether it still lives before it is used.
const IDLE_TRUSTED: Duration = Duration::from_secs(5);

/// `postgres://…`, `sqlite://path`, or a path.
#[derive(Clone, PartialEq, Eq)]
pub enum Address {
    Sqlite(PathBuf),
    /// The whole URL. It may hold a password and is never printed.
    Postgres(String),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a database address: expected postgres://…, sqlite://<path> or a path")]
pub struct InvalidAddress;

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite://{}", path.display()),
            Self::Postgres(_) => f.write_str("postgres://.."),
        }
    }
}

impl FromStr for Address {
    type Err = InvalidAddress;
    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.to_owned()));
        }
        let path = text.strip_prefix("sqlite://").or_else(|| text.strip_prefix("sqlite:")).unwrap_or(text);
        // In-memory databases differ for each connection; nothing here can use one.
        if path.is_empty() || path.contains("://") || path.contains(":memory:") {
            return Err(InvalidAddress);
        }
        Ok(Self::Sqlite(PathBuf::from(path)))
    }
}

/// SQLite's two pools: one writer, several readers that cannot write.
pub(crate) async fn sqlite(path: &std::path::Path) -> sqlx::Result<(SqlitePool, SqlitePool)> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY)
        .statement_cache_capacity(STATEMENTS_MAX);
    let pool = SqlitePoolOptions::new().acquire_timeout(ACQUIRE).test_before_acquire(false);
    let writer = pool.clone().max_connections(1).connect_with(options.clone()).await?;
    let readers = pool
        .max_connections(SQLITE_READERS)
        .connect_with(
            options.create_if_missing(false).row_buffer_size(SQLITE_ROWS_AHEAD).pragma("query_only", "ON"),
        )
        .await?;
    Ok((writer, readers))
}

/// PostgreSQL's options without limits on time: for migrations.
pub(crate) fn postgres_options(url: &str) -> sqlx::Result<PgConnectOptions> {
    Ok(PgConnectOptions::from_str(url)?.application_name("tarn").statement_cache_capacity(STATEMENTS_MAX))
}

/// PostgreSQL's two pools: one writes, the other cannot.
pub(crate) async fn postgres(url: &str) -> sqlx::Result<(PgPool, PgPool)> {
    let options = postgres_options(url)?.options([
        ("statement_timeout", "30s"),
        ("lock_timeout", "10s"),
        ("idle_in_transaction_session_timeout", "60s"),
    ]);
    let pool = PgPoolOptions::new()
        .max_connections(POSTGRES_CONNECTIONS)
        .acquire_timeout(ACQUIRE)
        .test_before_acquire(false)
        .before_acquire(|conn, meta| {
            Box::pin(async move { Ok(meta.idle_for < IDLE_TRUSTED || conn.ping().await.is_ok()) })
        });
    let readers = options.clone().options([("default_transaction_read_only", "on")]);
    Ok((pool.clone().connect_with(options).await?, pool.connect_with(readers).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart_and_hide_passwords() {
        let sqlite = |path: &str| Ok(Address::Sqlite(PathBuf::from(path)));
        assert_eq!("data/tarn.db".parse(), sqlite("data/tarn.db"));
        assert_eq!("sqlite:///var/lib/tarn.db".parse(), sqlite("/var/lib/tarn.db"));
        let postgres: Address = "postgres://tarn:hunter2@db/tarn".parse().unwrap();
        assert!(!format!("{postgres:?}").contains("hunter2"));
        for text in ["", "mysql://x", "sqlite::memory:"] {
            assert_eq!(text.parse::<Address>(), Err(InvalidAddress), "{text}");
        }
    }
}
