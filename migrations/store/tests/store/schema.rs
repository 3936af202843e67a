//! The schemas themselves: names of constraints, rows that never change, rows that are corrupt, replicas that start together.

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, SqliteConnection};
use tarn_billing::account::AccountKind;
use tarn_billing::transfer::TransferKind;
use tarn_rows::ledger::Posting;
use tarn_store::{Constraint, Store, StoreError};

use crate::database::Fresh;
use crate::fixtures::*;

on_both_engines! {
    a_posted_transfer_never_changes,
    an_issued_invoice_never_changes,
    a_corrupt_row_is_an_error_where_it_is_read,
    migrating_again_changes_nothing,
}

/// Runs SQL past the store, as a mistaken operator would.
pub async fn past_the_store(url: &str, sql: &str) -> sqlx::Result<u64> {
    let sql = AssertSqlSafe(sql.to_owned());
    if url.starts_with("postgres") {
        let mut conn = PgConnection::connect(url).await?;
        Ok(sqlx::raw_sql(sql).execute(&mut conn).await?.rows_affected())
    } else {
        let mut conn = SqliteConnection::connect(url).await?;
        Ok(sqlx::raw_sql(sql).execute(&mut conn).await?.rows_affected())
    }
}

async fn a_posted_transfer_never_changes(store: Store, url: String) {
    let (_, wallet) = funded_tenant(&store, 10).await;
    let spend = transfer_row(TransferKind::Usage, &wallet, &system(AccountKind::RevenueGpu), 1);
    let posted = change!(store, tx => tx.post_transfer(&spend).await).await.unwrap();
    assert_eq!(posted, Posting::Posted);
    for sql in [
        "UPDATE transfers SET amount_micros = amount_micros + 1",
        "DELETE FROM entries",
        "DELETE FROM transfers",
        "UPDATE entries SET amount_micros = 5",
        "UPDATE wallet_balances SET posted_micros = -1",
        "UPDATE wallet_balances SET held_micros = 11",
    ] {
        assert!(past_the_store(&url, sql).await.is_err(), "{sql}");
    }
}

async fn an_issued_invoice_never_changes(store: Store, url: String) {
    let (scope, wallet) = funded_tenant(&store, 10).await;
    let reversal = transfer_row(TransferKind::Usage, &wallet, &system(AccountKind::RevenueGpu), 1);
    change!(store, tx => tx.post_transfer(&reversal).await).await.unwrap();
    change!(store, tx => tx.next_invoice_number("TARN", 2027).await).await.unwrap();
    let tenant = scope.tenant_id();
    let made = format!(
        "INSERT INTO invoices (id, tenant_id, kind, seller, year, number, corrects, period_from, period_to, total_micros,
             document, issued_at)
         VALUES ('inv_1', '{tenant}', 'invoice', 'TARN', 2027, 1, NULL, 0, 1, 5, '{{}}', 2),
                ('inv_2', '{tenant}', 'credit_note', 'TARN', 2027, 2, 'inv_1', 0, 1, -5, '{{}}', 2);
         INSERT INTO invoice_lines (invoice_id, place, segment_id, from_s, to_s, amount_micros)
         VALUES ('inv_1', 0, 'seg_1', 0, 9, 5);
         INSERT INTO credit_lines (transfer_id, invoice_id, place, amount_micros)
         SELECT id, 'inv_2', 0, -5 FROM transfers WHERE kind = 'usage'"
    );
    past_the_store(&url, &made).await.unwrap();
    for sql in [
        "UPDATE invoices SET total_micros = 4",
        "UPDATE invoices SET document = '{\"lines\":[]}'",
        "DELETE FROM credit_lines",
        "UPDATE credit_lines SET amount_micros = -4",
        "UPDATE invoice_lines SET to_s = 8",
        "DELETE FROM invoice_lines",
        "DELETE FROM invoices",
        "UPDATE invoice_numbers SET last = last + 2",
        "DELETE FROM invoice_numbers",
        "INSERT INTO invoices (id, tenant_id, kind, seller, year, number, corrects, period_from, period_to, total_micros,
             document, issued_at)
         SELECT 'inv_3', tenant_id, kind, seller, year, number, corrects, period_from, period_to, total_micros, document,
             issued_at FROM invoices WHERE id = 'inv_1'",
    ] {
        assert!(past_the_store(&url, sql).await.is_err(), "{sql}");
    }
}

async fn a_corrupt_row_is_an_error_where_it_is_read(store: Store, url: String) {
    let (host, _) = host(&store, 0).await;
    assert_eq!(past_the_store(&url, "UPDATE hosts SET inventory = '{'").await.unwrap(), 1);
    let read = store.reader().await.unwrap().host(&host.id).await;
    match read {
        Err(StoreError::Corrupt(bad)) => assert_eq!((bad.row, bad.field), ("HostRow", "inventory")),
        other => panic!("{other:?}"),
    }
}

async fn migrating_again_changes_nothing(store: Store, _url: String) {
    host(&store, 1).await;
    store.migrate().await.unwrap();
    assert_eq!(store.reader().await.unwrap().fleet_counts().await.unwrap().gpus, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replicas_that_start_together_migrate_once() {
    let url = Fresh::empty_postgres().await;
    let mut replicas = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let url = url.clone();
        replicas.spawn(async move {
            let store = Store::connect(&url).await.unwrap();
            store.migrate().await.unwrap();
            let hosts = store.reader().await.unwrap().fleet_counts().await.unwrap().hosts;
            store.close().await;
            hosts
        });
    }
    assert_eq!(replicas.join_all().await, [0; 4]);
    Fresh::drop_postgres(&url).await;
}

/// Every unique index of both schemas has one name here, and the same one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_uniqueness_has_a_name() {
    let postgres = Fresh::postgres().await;
    let mut conn = PgConnection::connect(&postgres.url).await.unwrap();
    let rows = sqlx::query(
        "SELECT i.relname AS name, string_agg(t.relname || '.' || a.attname, ', ' ORDER BY k.place) AS columns
         FROM pg_index x
         JOIN pg_class i ON i.oid = x.indexrelid
         JOIN pg_class t ON t.oid = x.indrelid
         JOIN pg_namespace n ON n.oid = t.relnamespace AND n.nspname = 'public'
         CROSS JOIN LATERAL unnest(x.indkey) WITH ORDINALITY AS k (column_number, place)
         JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.column_number
         WHERE x.indisunique AND t.relname <> '_sqlx_migrations'
         GROUP BY i.relname",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap();
    assert!(rows.len() > 40);
    for row in rows {
        let (name, columns): (String, String) = (row.get("name"), row.get("columns"));
        let constraint = Constraint::of_postgres(&name);
        assert!(constraint.is_some(), "{name} has no name");
        assert_eq!(constraint, Constraint::of_sqlite(&columns), "{name} on {columns}");
    }
    conn.close().await.unwrap();
    postgres.remove().await;

    let sqlite = Fresh::sqlite().await;
    let mut conn = SqliteConnection::connect(&sqlite.url).await.unwrap();
    let rows = sqlx::query(
        "SELECT t.name || '.' || group_concat(c.name, ', ' || t.name || '.') AS columns
         FROM sqlite_master t, pragma_index_list(t.name) i, pragma_index_info(i.name) c
         WHERE t.type = 'table' AND i.\"unique\" AND t.name <> '_sqlx_migrations' GROUP BY t.name, i.name",
    )
    .fetch_all(&mut conn)
    .await
    .unwrap();
    assert!(rows.len() > 40);
    for row in rows {
        let columns: String = row.get("columns");
        assert!(Constraint::of_sqlite(&columns).is_some(), "{columns} has no name");
    }
    conn.close().await.unwrap();
    sqlite.remove().await;
}
