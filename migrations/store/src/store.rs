//! Connecting, migrating, and the entries to the database.

use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::{Migrate, Migrator};
use sqlx::{Connection as _, PgPool, SqlitePool};
use tarn_store_postgres as postgres;
use tarn_store_sqlite as sqlite;

use crate::Work;
use crate::address::{self, Address};
use crate::error::StoreError;
use crate::group_commit::GroupCommit;
use crate::tx::{Conn, Tx};

/// How often a transaction that lost a race is tried again.
const RETRIES_MAX: u32 = 6;
/// Before the first retry; doubled for each further one.
const BACKOFF: Duration = Duration::from_millis(5);

/// The database. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    engine: Arc<Engine>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Store").field(&self.engine_name()).finish()
    }
}

enum Engine {
    Sqlite { writer: SqlitePool, group: GroupCommit, readers: SqlitePool },
    Postgres { url: String, writer: PgPool, readers: PgPool },
}

impl Store {
    /// Connects to `postgres://…`, `sqlite://path` or a path; the file is created if missing. Call [`Store::migrate`] next.
    pub async fn connect(address: &str) -> Result<Self, StoreError> {
        let address: Address = address.parse()?;
        let engine = match address {
            Address::Sqlite(path) => {
                let (writer, readers) = address::sqlite(&path).await?;
                Engine::Sqlite { writer, group: GroupCommit::default(), readers }
            }
            Address::Postgres(url) => {
                let (writer, readers) = address::postgres(&url).await?;
                Engine::Postgres { url, writer, readers }
            }
        };
        Ok(Self { engine: Arc::new(engine) })
    }

    /// `sqlite` or `postgres`, for people.
    pub fn engine_name(&self) -> &'static str {
        match &*self.engine {
            Engine::Sqlite { .. } => "sqlite",
            Engine::Postgres { .. } => "postgres",
        }
    }

    /// Brings the schema up to date. Replicas that start together wait for each other: on PostgreSQL by an advisory lock, on SQLite
    /// by the single writer of the one process.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        match &*self.engine {
            Engine::Sqlite { writer, .. } => {
                let mut conn = writer.acquire().await?;
                apply(&sqlite::PORTABLE, &sqlite::EXTRA, &mut *conn).await
            }
            Engine::Postgres { url, .. } => {
                // A connection of its own: a migration may take longer than any request.
                let options = address::postgres_options(url)?;
                let mut conn = sqlx::PgConnection::connect_with(&options).await?;
                apply(&postgres::PORTABLE, &postgres::EXTRA, &mut conn).await?;
                conn.close().await?;
                Ok(())
            }
        }
    }

    /// Runs `work` as one transaction, in a task of its own: once called, it ends by itself, whoever stops waiting for it. It
    /// commits if `work` returns `Ok`, else nothing of it happened. `work` may run several times (a lost race is tried again), so
    /// it does nothing but database work and owns what it uses: `store.write(move |tx| Box::pin(async move { … })).await`.
    pub async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: for<'tx> FnOnce(&'tx mut Tx) -> Work<'tx, Result<T, E>> + Clone + Send + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let store = self.clone();
        match tokio::spawn(async move { store.write_here(work).await }).await {
            Ok(done) => done,
            Err(ended) => match ended.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(StoreError::Ended.into()),
            },
        }
    }

    async fn write_here<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: for<'tx> FnOnce(&'tx mut Tx) -> Work<'tx, Result<T, E>> + Clone,
        E: From<StoreError>,
    {
        let mut retries = 0;
        loop {
            let lost = match self.attempt(work.clone()).await {
                Ok(done) => return done,
                Err(lost) => lost,
            };
            if retries == RETRIES_MAX {
                return Err(lost);
            }
            tracing::debug!(retries, "transaction lost a race");
            tokio::time::sleep(BACKOFF * 2u32.pow(retries)).await;
            retries += 1;
        }
    }

    /// One attempt: `Err` is what to return should no retry be left.
    async fn attempt<T, E, F>(&self, work: F) -> Result<Result<T, E>, E>
    where
        F: for<'tx> FnOnce(&'tx mut Tx) -> Work<'tx, Result<T, E>>,
        E: From<StoreError>,
    {
        let pool = match &*self.engine {
            Engine::Sqlite { writer, group, .. } => return group.attempt(writer, work).await,
            Engine::Postgres { writer, .. } => writer,
        };
        let again = |error: StoreError| {
            if error.lost_a_race() { Err(error.into()) } else { Ok(Err(error.into())) }
        };
        let conn = match pool.acquire().await {
            Ok(conn) => Conn::Postgres(conn),
            Err(error) => return Ok(Err(StoreError::from(error).into())),
        };
        let mut tx = match Tx::begin(conn, "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE").await {
            Ok(tx) => tx,
            // The server may have restarted under an idle connection, and nothing happened yet.
            Err(error @ StoreError::Unavailable(_)) => return Err(error.into()),
            Err(error) => return again(error),
        };
        match work(&mut tx).await {
            Ok(value) => match tx.commit().await {
                Ok(()) => Ok(Ok(value)),
                Err(error) => again(error),
            },
            Err(error) => {
                let lost = tx.lost_a_race();
                tx.rollback().await;
                if lost { Err(error) } else { Ok(Err(error)) }
            }
        }
    }

    /// A connection that cannot write, for statements that each see the newest commit. Dropping it gives it back.
    pub async fn reader(&self) -> Result<Tx, StoreError> {
        Ok(Tx::without_transaction(self.read_connection().await?))
    }

    async fn read_connection(&self) -> Result<Conn, StoreError> {
        Ok(match &*self.engine {
            Engine::Sqlite { readers, .. } => Conn::Sqlite(readers.acquire().await?),
            Engine::Postgres { readers, .. } => Conn::Postgres(readers.acquire().await?),
        })
    }

    /// [`Store::reader`] in the form of [`Store::write`].
    pub async fn read<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: for<'tx> FnOnce(&'tx mut Tx) -> Work<'tx, Result<T, E>>,
        E: From<StoreError>,
    {
        let mut tx = self.reader().await?;
        work(&mut tx).await
    }

    /// Several statements that see one instant of the database: a fleet for placement, a ledger for an audit.
    pub async fn snapshot<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: for<'tx> FnOnce(&'tx mut Tx) -> Work<'tx, Result<T, E>>,
        E: From<StoreError>,
    {
        let begin = match &*self.engine {
            Engine::Sqlite { .. } => "BEGIN",
            Engine::Postgres { .. } => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        };
        let mut tx = Tx::begin(self.read_connection().await?, begin).await?;
        let done = work(&mut tx).await;
        tx.rollback().await;
        done
    }

    /// Waits for running transactions and closes every connection.
    pub async fn close(&self) {
        match &*self.engine {
            Engine::Sqlite { writer, readers, .. } => {
                readers.close().await;
                writer.close().await;
            }
            Engine::Postgres { writer, readers, .. } => {
                readers.close().await;
                writer.close().await;
            }
        }
    }
}

async fn apply<C>(portable: &Migrator, extra: &Migrator, conn: &mut C) -> Result<(), StoreError>
where
    C: Migrate,
{
    let both = portable.iter().chain(extra.iter()).cloned().collect();
    Migrator::with_migrations(both).run_direct(None, conn, false).await?;
    Ok(())
}
