//! The store on both engines: every test runs on a SQLite file and on a real PostgreSQL, each in a database of its own.
//!
//! PostgreSQL is the server at `TARN_TEST_POSTGRES_URL`, or one that the first test starts and that goes with this process.

#![allow(clippy::unwrap_used, reason = "the whole crate is tests")]

/// Runs each named `async fn(Fresh) -> Fresh`-shaped test on both engines.
macro_rules! on_both_engines {
    ($($name:ident,)*) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $name() {
                let fresh = crate::database::Fresh::sqlite().await;
                super::$name(fresh.store.clone(), fresh.url.clone()).await;
                fresh.remove().await;
            })*
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $name() {
                let fresh = crate::database::Fresh::postgres().await;
                super::$name(fresh.store.clone(), fresh.url.clone()).await;
                fresh.remove().await;
            })*
        }
    };
}

mod crash;
mod database;
mod fixtures;
mod fleet;
mod invoices;
mod leases;
mod ledger;
mod operators;
mod payments;
mod people;
mod plans;
mod proxy;
mod schema;
mod segments;
mod together;
mod transactions;
