//! What the engine and the disk allow: rows of a transfer's size inserted into one table, and nothing else.

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, SqliteConnection};

use crate::database;
use crate::fixtures::number;
use crate::load::{Load, Table};

const TABLE: &str = "CREATE TABLE t (id TEXT NOT NULL PRIMARY KEY, a TEXT NOT NULL, b TEXT NOT NULL, \
                     amount BIGINT NOT NULL, memo TEXT NOT NULL, at BIGINT NOT NULL)";
const INSERT: &str = "INSERT INTO t (id, a, b, amount, memo, at) VALUES ($1, $2, $3, $4, $5, $6)";

pub async fn postgres_fsync() -> String {
    let mut conn = PgConnection::connect(database::server_url()).await.unwrap();
    sqlx::query_scalar("SHOW fsync").fetch_one(&mut conn).await.unwrap()
}

pub async fn sqlite(table: &mut Table) {
    let directory = tempfile::tempdir().unwrap();
    let mut conn = SqliteConnectOptions::new()
        .filename(directory.path().join("raw.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .connect()
        .await
        .unwrap();
    sqlx::query(TABLE).execute(&mut conn).await.unwrap();
    for rows in [1, 20, 200] {
        let name = if rows == 1 {
            "raw sqlite, 1 row a commit".to_owned()
        } else {
            format!("raw sqlite, {rows} rows a commit")
        };
        table.row(name, commits(&mut conn, rows).await);
    }
}

/// One connection in a loop: it cannot be shared by tasks, so it is timed here.
async fn commits(conn: &mut SqliteConnection, rows: usize) -> Load {
    let mut took = Vec::new();
    let begin = std::time::Instant::now();
    while begin.elapsed() < std::time::Duration::from_secs(3) {
        let started = std::time::Instant::now();
        let mut tx = conn.begin_with("BEGIN IMMEDIATE").await.unwrap();
        for _ in 0..rows {
            sqlx::query(INSERT)
                .bind(format!("transfer-{:026}", number()))
                .bind("account-of-a-tenant-0000000000")
                .bind("account-of-tarn-00000000000000")
                .bind(1_234_i64)
                .bind("usage")
                .bind(1_700_000_000_000_000_i64)
                .execute(&mut *tx)
                .await
                .unwrap();
        }
        tx.commit().await.unwrap();
        took.push(started.elapsed());
    }
    let seconds = begin.elapsed().as_secs_f64();
    took.sort_unstable();
    let at = |percent: usize| took[(took.len() - 1) * percent / 100];
    Load { per_second: (took.len() * rows) as f64 / seconds, p50: at(50), p99: at(99) }
}
