//! One checked-out connection, and the transaction on it if there is one.

use sqlx::pool::PoolConnection;
use sqlx::{Postgres, Sqlite};

use crate::Work;
use crate::error::StoreError;

/// What queries run on. From [`crate::Store::write`] and [`crate::Store::snapshot`] it is a transaction; from
/// [`crate::Store::reader`] a connection that cannot write.
#[derive(Debug)]
pub struct Tx {
    pub(crate) conn: Conn,
    /// A `BEGIN` was sent whose end was not seen.
    open: bool,
    /// A statement failed: PostgreSQL would turn a commit into a silent rollback, and SQLite would commit the rest.
    poisoned: bool,
    /// One failed because another transaction won.
    lost_a_race: bool,
}

#[derive(Debug)]
pub(crate) enum Conn {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
}

/// How a part of a transaction ended.
pub(crate) enum Part<T, E> {
    Done(T),
    /// Undone alone; the transaction can go on.
    Undone {
        error: E,
        /// It failed because another transaction won.
        lost_a_race: bool,
    },
    /// The transaction as a whole is lost.
    Broken(E),
}

impl Tx {
    pub(crate) const fn without_transaction(conn: Conn) -> Self {
        Self { conn, open: false, poisoned: false, lost_a_race: false }
    }

    /// Opens the transaction. Dropped half-way, the connection is closed with it.
    pub(crate) async fn begin(conn: Conn, statement: &'static str) -> Result<Self, StoreError> {
        let mut tx = Self::without_transaction(conn);
        tx.open = true;
        tx.run(statement).await?;
        Ok(tx)
    }

    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        if self.poisoned {
            self.rollback().await;
            return Err(StoreError::Poisoned);
        }
        match self.run("COMMIT").await {
            Ok(()) => {
                self.open = false;
                Ok(())
            }
            Err(StoreError::Unavailable(source)) => Err(StoreError::OutcomeUnknown(source)),
            Err(error) => Err(error),
        }
    }

    /// Never fails: a connection that does not roll back is closed, which rolls back.
    pub(crate) async fn rollback(mut self) {
        if self.run("ROLLBACK").await.is_ok() {
            self.open = false;
        }
    }

    /// For work that lost a compare-and-set: returned from it, the error has the whole transaction tried again from its start.
    pub const fn stale(&mut self) -> StoreError {
        self.lost_a_race = true;
        StoreError::Stale
    }

    pub(crate) const fn lost_a_race(&self) -> bool {
        self.lost_a_race
    }

    /// Runs part of a transaction that may fail alone: on an error, only what `work` did is undone and the rest can go on. For
    /// batches that commit many things at once (group commit), where one bad item must not undo the others.
    pub async fn savepoint<T, E>(
        &mut self,
        work: impl for<'tx> FnOnce(&'tx mut Self) -> Work<'tx, Result<T, E>>,
    ) -> Result<T, E>
    where
        E: From<StoreError>,
    {
        match self.part(work).await {
            Part::Done(value) => Ok(value),
            Part::Undone { error, .. } | Part::Broken(error) => Err(error),
        }
    }

    /// [`Tx::savepoint`], telling apart what its caller must know to go on.
    pub(crate) async fn part<T, E>(
        &mut self,
        work: impl for<'tx> FnOnce(&'tx mut Self) -> Work<'tx, Result<T, E>>,
    ) -> Part<T, E>
    where
        E: From<StoreError>,
    {
        let before = (self.poisoned, self.lost_a_race);
        if let Err(error) = self.run("SAVEPOINT part").await {
            return Part::Broken(error.into());
        }
        let done = work(self).await;
        let poisoned = self.poisoned != before.0;
        let lost_a_race = self.lost_a_race;
        let error = match done {
            Ok(value) if !poisoned => {
                return match self.run("RELEASE SAVEPOINT part").await {
                    Ok(()) => Part::Done(value),
                    Err(error) => Part::Broken(error.into()),
                };
            }
            Ok(_) => StoreError::Poisoned.into(),
            Err(error) => error,
        };
        // Some failures (a full disk) end the whole transaction, and then there is nothing to go back to.
        if self.run("ROLLBACK TO SAVEPOINT part").await.is_err()
            || self.run("RELEASE SAVEPOINT part").await.is_err()
        {
            return Part::Broken(error);
        }
        (self.poisoned, self.lost_a_race) = before;
        Part::Undone { error, lost_a_race }
    }

    async fn run(&mut self, statement: &'static str) -> Result<(), StoreError> {
        let done = match &mut self.conn {
            Conn::Sqlite(conn) => sqlx::raw_sql(statement).execute(&mut **conn).await.map(|_| ()),
            Conn::Postgres(conn) => sqlx::raw_sql(statement).execute(&mut **conn).await.map(|_| ()),
        };
        self.checked(done)
    }

    /// Every query's result passes here, so that the transaction knows what became of it.
    pub(crate) fn checked<T>(&mut self, done: sqlx::Result<T>) -> Result<T, StoreError> {
        done.map_err(|error| {
            let error = StoreError::from(error);
            // A value refused before any SQL ran leaves the transaction whole; everything else does not.
            if self.open && !matches!(error, StoreError::Unstorable(_) | StoreError::Corrupt(_)) {
                self.poisoned = true;
                self.lost_a_race |= error.lost_a_race();
            }
            error
        })
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        if self.open {
            match &mut self.conn {
                Conn::Sqlite(conn) => conn.close_on_drop(),
                Conn::Postgres(conn) => conn.close_on_drop(),
            }
        }
    }
}
