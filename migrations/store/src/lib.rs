//! The database as the rest of Tarn sees it: connect by address, one transaction entry, errors by name.
//!
//! * [`Store::write`]: the one way to change rows. The work runs in a task of its own, so a client that hangs up cuts nothing; it is
//!   one transaction, tried again when the engine says that it lost a race. SQLite: `BEGIN IMMEDIATE` on a single writer,
//!   whose commit is shared by all who wait for it.
//!   PostgreSQL: READ COMMITTED; races are decided by compare-and-set and by constraints.
//! * [`Store::reader`], [`Store::read`]: statements that each see the newest commit. [`Store::snapshot`]: several that see one instant.
//! * [`Tx`]: one method for each query of `migrations/queries`, dispatched to the engine, so that callers know no engine.
//! * [`StoreError`], [`Constraint`]: both engines' refusals under one name.
//!
//! No connection leaves this crate. A connection whose transaction did not end in our sight (a dropped future, a panic, a lost
//! answer) is closed, never reused: sqlx 0.9.0 may hand a connection back inside an open transaction when a `BEGIN` is cancelled,
//! and later writes on it would be acknowledged and lost. This costs nothing, where a `ROLLBACK` at every release costs a round
//! trip and a warning in the server's log.

mod address;
mod calls;
mod constraint;
mod error;
mod group_commit;
mod store;
mod tx;

pub use address::{Address, InvalidAddress};
pub use constraint::Constraint;
pub use error::StoreError;
pub use store::Store;
pub use tx::Tx;

/// What a transaction's closure returns.
pub type Work<'tx, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'tx>>;
