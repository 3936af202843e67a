//! The portable queries, compiled and checked against PostgreSQL.
//!
//! Only PostgreSQL's own migrations (`extra/`) live here besides: exclusion constraints, and triggers in its own language.

use sqlx::migrate::Migrator;

pub type Db = sqlx::Postgres;
pub type Conn = sqlx::PgConnection;

pub mod posting;
#[path = "../../queries/mod.rs"]
pub mod queries;

/// The portable migrations.
pub static PORTABLE: Migrator = sqlx::migrate!("../../migrations");
/// What PostgreSQL alone can express. One sequence of versions with the portable ones.
pub static EXTRA: Migrator = sqlx::migrate!("../postgres/extra");
