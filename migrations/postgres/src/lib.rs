//! The portable queries, compiled and checked against PostgreSQL.
//!
//! Besides them only what PostgreSQL does its own way: migrations (`extra/`: exclusion constraints, and triggers in its own language), and
//! a transfer with its entries in one statement ([`posting`]).

use sqlx::migrate::Migrator;

pub type Db = sqlx::Postgres;
pub type Conn = sqlx::PgConnection;

mod posting;
#[path = "../../queries/mod.rs"]
pub mod queries;

/// The portable migrations.
pub static PORTABLE: Migrator = sqlx::migrate!("../../migrations");
/// What PostgreSQL alone can express. One sequence of versions with the portable ones.
pub static EXTRA: Migrator = sqlx::migrate!("../postgres/extra");
