//! The portable queries, compiled and checked against SQLite.
//!
//! Besides them only what SQLite does its own way: migrations (`extra/`: triggers that guard what PostgreSQL guards with an exclusion
//! constraint), and a transfer with its entries in two statements ([`posting`]).

use sqlx::migrate::Migrator;

pub type Db = sqlx::Sqlite;
pub type Conn = sqlx::SqliteConnection;

mod posting;
#[path = "../../queries/mod.rs"]
pub mod queries;

/// The portable migrations.
pub static PORTABLE: Migrator = sqlx::migrate!("../../migrations");
/// What SQLite alone can express. One sequence of versions with the portable ones.
pub static EXTRA: Migrator = sqlx::migrate!("../sqlite/extra");
