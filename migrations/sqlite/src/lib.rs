//! The portable queries, compiled and checked against SQLite.
//!
//! Only SQLite's own migrations (`extra/`) live here besides: triggers that guard what PostgreSQL guards with an exclusion constraint.

use sqlx::migrate::Migrator;

pub type Db = sqlx::Sqlite;
pub type Conn = sqlx::SqliteConnection;

pub mod posting;
#[path = "../../queries/mod.rs"]
pub mod queries;

/// The portable migrations.
pub static PORTABLE: Migrator = sqlx::migrate!("../../migrations");
/// What SQLite alone can express. One sequence of versions with the portable ones.
pub static EXTRA: Migrator = sqlx::migrate!("../sqlite/extra");
