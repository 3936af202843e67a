//! The demo as a newcomer runs it: the program itself, twice on the same data.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::database::Fresh;

/// The fields of the last line, after `demo: ok`.
async fn told(data: &Path, database: Option<&str>) -> BTreeMap<String, i64> {
    let mut demo = tokio::process::Command::new(env!("CARGO_BIN_EXE_tarn"));
    demo.args(["demo", "--once"])
        .env("TARN_DATA_DIR", data)
        .env("TARN_LISTEN", "127.0.0.1:0")
        .env_remove("DATABASE_URL")
        .kill_on_drop(true);
    if let Some(database) = database {
        demo.env("DATABASE_URL", database);
    }
    let output = tokio::time::timeout(Duration::from_mins(8), demo.output()).await.unwrap().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let last = text.lines().last().unwrap();
    let fields = last.strip_prefix("demo: ok ").unwrap_or_else(|| panic!("{last}"));
    fields
        .split(' ')
        .map(|field| field.split_once('=').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

fn check(fields: &BTreeMap<String, i64>) {
    assert_eq!(fields["devices"], 1);
    assert!(fields["total_bytes"] >= 95 << 30, "{fields:?}");
    // Every granule of more than 90 GiB was written and read back at both ends.
    assert!(fields["verified_bytes"] >= (90 << 30) / (2 << 20) * 8192, "{fields:?}");
    assert_eq!(fields["donors"], 3);
    assert_eq!(fields["segments"], 1);
    assert!(fields["billed_micros"] > 0);
    assert_eq!(fields["billed_micros"], fields["expected_micros"]);
}

#[tokio::test]
async fn the_demo_holds_and_a_second_run_continues_it() {
    let data = tempfile::tempdir().unwrap();
    check(&told(data.path(), None).await);
    let keys = std::fs::read_to_string(data.path().join("demo.json")).unwrap();
    check(&told(data.path(), None).await);
    assert_eq!(std::fs::read_to_string(data.path().join("demo.json")).unwrap(), keys, "the same people");
}

#[tokio::test]
async fn the_demo_holds_on_postgres() {
    let data = tempfile::tempdir().unwrap();
    let url = Fresh::empty_postgres().await;
    check(&told(data.path(), Some(&url)).await);
    Fresh::drop_postgres(&url).await;
}
