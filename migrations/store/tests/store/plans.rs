//! How the engines plan what reports ask: a tenant's statement reads that tenant's entries, through the index made for it.

use std::path::Path;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, SqliteConnection};

use crate::database::Fresh;

/// The statement texts of an engine that contain `part`, from the data that `query!` checked.
fn texts(engine: &str, part: &str) -> Vec<String> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(engine).join(".sqlx");
    let files =
        std::fs::read_dir(&directory).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
    let queries = files.map(|file| serde_json::from_slice::<serde_json::Value>(&file).unwrap());
    let texts = queries.map(|query| query["query"].as_str().unwrap().to_owned());
    texts.filter(|text| text.contains(part)).collect()
}

/// One account's entries of a period: part of every such statement, and what its plan must be.
const READS: [(&str, &str); 4] = [
    ("e.account_id = $1 AND e.created_at", "entries_by_account"),
    ("e.created_at, e.transfer_id)", "entries_by_account"),
    ("a.tenant_id = $1 AND a.id = $2)", "entries_by_account"),
    ("FROM usage_segments WHERE sku = $1 AND ended_at IS NULL", "usage_segments_open_by_sku"),
];

#[tokio::test]
async fn sqlite_reads_reports_through_their_indexes() {
    let fresh = Fresh::sqlite().await;
    let mut conn = SqliteConnection::connect(&fresh.url).await.unwrap();
    for (part, index) in READS {
        let texts = texts("sqlite", part);
        assert!(!texts.is_empty(), "no statement has {part}");
        for text in texts {
            let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}"));
            let plan = sqlx::raw_sql(explain).fetch_all(&mut conn).await.unwrap();
            let plan: Vec<String> = plan.iter().map(|row| row.get("detail")).collect();
            assert!(
                plan.iter().any(|step| step.contains("SEARCH") && step.contains(index)),
                "{text}\n{plan:#?}"
            );
            let scans = |step: &String| step.starts_with("SCAN") && !step.contains("CONSTANT ROW");
            assert!(!plan.iter().any(scans), "{text}\n{plan:#?}");
        }
    }
    conn.close().await.unwrap();
    fresh.remove().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_can_read_reports_through_their_indexes() {
    let fresh = Fresh::postgres().await;
    let mut conn = PgConnection::connect(&fresh.url).await.unwrap();
    for (part, index) in READS {
        let texts = texts("postgres", part);
        assert!(!texts.is_empty(), "no statement has {part}");
        for text in texts {
            let parameters = (1..20).take_while(|number| text.contains(&format!("${number}"))).count();
            let nulls = vec!["NULL"; parameters].join(", ");
            // Tables of a test are empty, where a scan is cheapest; so scans are made dear.
            let explain = format!(
                "SET enable_seqscan = off; SET enable_bitmapscan = off; SET plan_cache_mode = force_generic_plan;
                 PREPARE asked AS {text}; EXPLAIN EXECUTE asked({nulls})"
            );
            let plan = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&mut conn).await.unwrap();
            let plan: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
            assert!(plan.iter().any(|step| step.contains(index)), "{text}\n{plan:#?}");
            assert!(!plan.iter().any(|step| step.contains("Seq Scan on entries")), "{text}\n{plan:#?}");
            sqlx::raw_sql("DEALLOCATE asked").execute(&mut conn).await.unwrap();
        }
    }
    conn.close().await.unwrap();
    fresh.remove().await;
}
