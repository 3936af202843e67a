//! How long the audit of a large ledger takes: `cargo bench -p tarn --bench audit -- [sqlite|postgres] [entries]`.
//!
//! The ledger is made first, through settlement's own plans and the store's own calls: tenants with a grant each, instances with
//! segments, evidence for every interval, and a transfer for each settlement. Then it is audited three times, beside a bare count of
//! the same entries, so that the ratio says what the audit adds to reading.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot unwrap has failed")]

use std::time::{Duration, Instant};

use tarn_api::app::books::audit::audit;
use tarn_billing::audit::Audited;
use tarn_store::Store;

use crate::database::Fresh;

#[path = "../../../migrations/store/tests/store/database.rs"]
#[allow(dead_code, reason = "shared with the store's tests, which use all of it")]
mod database;
#[path = "../../../migrations/store/tests/store/fixtures.rs"]
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "shared with the store's tests, which use all of it"
)]
mod fixtures;
mod ledger;

const ENTRIES: u64 = 1_000_000;
/// On two cores.
const WANTED: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().filter(|argument| argument != "--bench").collect();
    let engine = arguments.get(1).map_or("sqlite", String::as_str);
    let entries = arguments.get(2).map_or(ENTRIES, |text| text.parse().unwrap());
    let fresh = if engine == "postgres" { Fresh::postgres().await } else { Fresh::sqlite().await };
    let made = timed(ledger::make(&fresh.store, entries)).await.1;
    println!("{engine}: {entries} entries made in {} s", made.as_secs());
    for _ in 0..3 {
        let ((), counted) = timed(count(&fresh.store)).await;
        let (audited, took) = timed(audit(&fresh.store, None)).await;
        show(&audited.unwrap(), took, counted);
    }
    fresh.remove().await;
}

async fn count(store: &Store) {
    store.snapshot(|tx| Box::pin(async move { tx.ledger_audit().await })).await.unwrap();
}

fn show(audited: &Audited, took: Duration, counted: Duration) {
    let scale = ENTRIES.checked_div(audited.entries).unwrap_or(1).max(1);
    println!(
        "{} entries, {} segments, {} pieces of evidence: audited in {} ms (counted by the database alone: {} ms); wanted: {} ms for {}",
        audited.entries,
        audited.segments,
        audited.evidence,
        took.as_millis(),
        counted.as_millis(),
        WANTED.as_millis() / u128::from(scale),
        ENTRIES / scale
    );
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures")]
async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let started = Instant::now();
    let done = work.await;
    (done, started.elapsed())
}
