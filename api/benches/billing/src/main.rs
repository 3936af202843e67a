//! Tarn's money beside its peers: raw inserts (what the engine and the disk allow), `doubleentry` (another ledger in Rust) and
//! pgledger-shaped SQL (a ledger inside PostgreSQL), in one run on one machine with every commit durable, so that the ratios mean
//! something where the absolute numbers do not.
//!
//! Every client is a closed loop: it keeps one call under way. Clients, Tarn and the engine share the machine's cores.
//!
//! `tarn-bench-billing ENGINE PART` measures one part on one engine (`sqlite settlement`), `ENGINE` alone all of one engine.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot unwrap has failed")]

use crate::database::Fresh;
use crate::load::Table;

#[path = "../../../../migrations/store/tests/store/database.rs"]
#[allow(dead_code, reason = "shared with the store's tests, which use all of it")]
mod database;
mod doubleentry_peer;
#[path = "../../../../migrations/store/tests/store/fixtures.rs"]
#[allow(dead_code, unused_imports, reason = "shared with the store's tests, which use all of it")]
mod fixtures;
mod load;
mod metering;
mod pgledger_peer;
mod raw;
mod transfers;

const ENGINES: [&str; 2] = ["sqlite", "postgres"];
const PARTS: [&str; 3] = ["transfers", "evidence", "settlement"];

/// What the command line asks for.
struct Wanted {
    engine: Option<String>,
    part: Option<String>,
}

impl Wanted {
    fn engine(&self, engine: &str) -> bool {
        self.engine.as_ref().is_none_or(|wanted| wanted == engine)
    }

    fn part(&self, part: &str) -> bool {
        self.part.as_ref().is_none_or(|wanted| wanted == part)
    }
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let wanted = Wanted { engine: arguments.next(), part: arguments.next() };
    let known = |word: &Option<String>, words: &[&str]| word.as_deref().is_none_or(|word| words.contains(&word));
    if !known(&wanted.engine, &ENGINES) || !known(&wanted.part, &PARTS) {
        eprintln!("tarn-bench-billing [{}] [{}]: without a word, all of it", ENGINES.join("|"), PARTS.join("|"));
        std::process::exit(2);
    }
    let mut table = Table::default();
    println!("SQLite: WAL, synchronous=FULL; PostgreSQL: fsync={}", raw::postgres_fsync().await);
    if wanted.engine("sqlite") {
        sqlite(&mut table, &wanted).await;
    }
    if wanted.engine("postgres") {
        postgres(&mut table, &wanted).await;
    }
    table.ratios();
}

async fn sqlite(table: &mut Table, wanted: &Wanted) {
    if wanted.part("transfers") {
        table.heading("SQLite, transfers");
        raw::sqlite(table).await;
        for batch in [1, 10, 100] {
            doubleentry_peer::sqlite(table, batch).await;
        }
        let fresh = Fresh::sqlite().await;
        transfers::all(table, "sqlite", &fresh.store).await;
        fresh.remove().await;
    }
    table.heading("SQLite, metering");
    metering::all(table, "sqlite", None, wanted).await;
}

async fn postgres(table: &mut Table, wanted: &Wanted) {
    if wanted.part("transfers") {
        table.heading("PostgreSQL, transfers");
        pgledger_peer::all(table).await;
        for batch in [1, 100] {
            doubleentry_peer::postgres(table, batch).await;
        }
        let fresh = Fresh::postgres().await;
        transfers::all(table, "postgres", &fresh.store).await;
        fresh.remove().await;
    }
    table.heading("PostgreSQL, metering");
    metering::all(table, "postgres", Some(Fresh::empty_postgres().await), wanted).await;
}
