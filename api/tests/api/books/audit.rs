//! The audit over real books, and over books with one wrong value in them.

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use tarn_api::app::books::audit::{AuditFailed, audit};
use tarn_billing::audit::Rule;

use super::busy;
use crate::fleet::world::World;
use crate::harness::Api;

on_both! {
    the_books_of_a_busy_day_are_consistent;
    every_corruption_is_named;
    one_audit_runs_at_a_time_and_only_for_operators;
}

async fn the_books_of_a_busy_day_are_consistent(api: Api) {
    let world = busy(api).await;
    let found = world.api.get(&world.operator.access, "/v1/admin/audit").await.is(200);
    assert_eq!((&found["consistent"], &found["difference"]), (&json!(true), &json!(null)), "{found}");
    let audited = &found["audited"];
    assert_eq!(audited["unsettled_seconds"], 0, "{found}");
    assert_eq!(audited["holds_pending"], 1);
    assert!(
        audited["segments"].as_u64().unwrap() >= 4 && audited["evidence"].as_u64().unwrap() >= 20,
        "{found}"
    );
    // What the tenants read of their bills is what the audit added up.
    let micros = |amount: &serde_json::Value| -> i64 {
        amount["amount"].as_str().unwrap().parse::<tarn_billing::money::Micros>().unwrap().get()
    };
    let totals = audited["totals"].as_object().unwrap();
    assert_eq!(totals.values().map(micros).sum::<i64>(), 0, "{found}");
    assert!(
        micros(&totals["revenue_gpu"]) > 0 && micros(&totals["topup_clearing"]) == -50_010_000,
        "{found}"
    );
}

async fn one_audit_runs_at_a_time_and_only_for_operators(api: Api) {
    let (operator, person) = (api.operator().await, api.person().await);
    api.get(&person.access, "/v1/admin/audit").await.fails(403, "scope_missing");
    let running = api.server.state().auditing.clone().lock_owned().await;
    api.get(&operator.access, "/v1/admin/audit").await.fails(409, "in_use");
    drop(running);
    assert_eq!(api.get(&operator.access, "/v1/admin/audit").await.is(200)["consistent"], true);
}

/// A hand in the database, past every guard.
enum Hand {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

const TABLES: [&str; 11] = [
    "price_book",
    "transfers",
    "entries",
    "accounts",
    "wallet_balances",
    "credit_grants",
    "holds",
    "usage_segments",
    "storage_segments",
    "meter_events",
    "leases",
];
const TRIGGERS: [&str; 8] = [
    "transfers_never_change",
    "transfers_never_go",
    "entries_never_change",
    "entries_never_go",
    "prices_never_change",
    "prices_never_go",
    "segments_never_overlap_insert",
    "segments_never_overlap_update",
];

impl Hand {
    async fn reach(world: &World) -> Self {
        let address = world.api.server.state().config.database();
        let mut hand = if address.starts_with("postgres") {
            Self::Postgres(PgConnection::connect(&address).await.unwrap())
        } else {
            Self::Sqlite(SqliteConnection::connect(&format!("sqlite://{address}")).await.unwrap())
        };
        match &hand {
            Self::Sqlite(_) => {
                hand.run("PRAGMA foreign_keys = OFF").await;
                hand.run("PRAGMA ignore_check_constraints = ON").await;
                for trigger in TRIGGERS {
                    hand.run(&format!("DROP TRIGGER {trigger}")).await;
                }
            }
            Self::Postgres(_) => {
                hand.run("SET session_replication_role = replica").await;
                // Checks and exclusions.
                hand.run(
                    "DO $$ DECLARE rule record; BEGIN
                         FOR rule IN SELECT conrelid::regclass AS place, conname FROM pg_constraint
                             WHERE contype IN ('c', 'x') AND connamespace = 'public'::regnamespace
                         LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', rule.place, rule.conname); END LOOP;
                     END $$",
                )
                .await;
            }
        }
        for table in TABLES {
            hand.run(&format!("CREATE TABLE whole_{table} AS SELECT * FROM {table}")).await;
        }
        hand
    }

    /// How many rows it changed.
    async fn run(&mut self, sql: &str) -> u64 {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        match self {
            Self::Sqlite(conn) => sql.execute(conn).await.unwrap().rows_affected(),
            Self::Postgres(conn) => sql.execute(conn).await.unwrap().rows_affected(),
        }
    }

    async fn heal(&mut self) {
        for table in TABLES {
            self.run(&format!("DELETE FROM {table}")).await;
            self.run(&format!("INSERT INTO {table} SELECT * FROM whole_{table}")).await;
        }
    }
}

/// A charge in the middle of the ledger; a segment with several; a piece of evidence in the middle of a run.
const A_CHARGE: &str = "(SELECT id FROM transfers WHERE kind = 'usage' ORDER BY id LIMIT 1 OFFSET 3)";
const A_SEGMENT: &str =
    "(SELECT segment_id FROM transfers WHERE kind = 'usage' ORDER BY id LIMIT 1 OFFSET 3)";
const A_PIECE: &str = "seq = (SELECT MAX(seq) / 2 FROM meter_events)";
const NOBODY: &str = "00000000000000000000000000";

/// What is done, the rule that names it, and what its row begins with. One line at least for each check of the audit.
fn plants() -> Vec<(String, Rule, &'static str)> {
    let of_charge = |change: &str| format!("UPDATE transfers SET {change} WHERE id = {A_CHARGE}");
    let of_segment = |change: &str| format!("UPDATE usage_segments SET {change} WHERE id = {A_SEGMENT}");
    let of_piece = |change: &str| format!("UPDATE meter_events SET {change} WHERE {A_PIECE}");
    let of_entry = |change: &str, whose: &str| {
        format!("UPDATE entries SET {change} WHERE transfer_id = {A_CHARGE} AND {whose}")
    };
    let all = |sql: &str| sql.to_owned();
    let of_disk = |change: &str| {
        format!("UPDATE storage_segments SET {change} WHERE id = (SELECT MIN(id) FROM storage_segments)")
    };
    vec![
        (of_disk("settled_micros = settled_micros + 1"), Rule::Charge, "segment seg_"),
        (of_disk("micros_per_hour = micros_per_hour + 1"), Rule::SegmentPrice, "segment seg_"),
        (of_charge("kind = 'payout'"), Rule::Transfer, "transfer trf_"),
        (of_charge("kind = 'bribe'"), Rule::Readable, "transfer after trf_"),
        (of_charge(&format!("credit_account_id = 'acc_{NOBODY}'")), Rule::Transfer, "transfer trf_"),
        (of_charge("tenant_id = NULL"), Rule::Transfer, "transfer trf_"),
        (of_charge("amount_micros = amount_micros + 1"), Rule::EntriesBalance, "transfer trf_"),
        (of_entry("amount_micros = amount_micros + 1", "seq IS NULL"), Rule::EntriesBalance, "transfer trf_"),
        (format!("DELETE FROM entries WHERE transfer_id = {A_CHARGE} AND seq IS NULL"), Rule::EntriesBalance, "transfer trf_"),
        (
            format!("INSERT INTO entries SELECT transfer_id, 'acc_{NOBODY}', amount_micros, NULL, NULL, created_at FROM entries WHERE transfer_id = {A_CHARGE} AND seq IS NULL"),
            Rule::EntriesBalance,
            "transfer trf_",
        ),
        (
            format!("INSERT INTO entries SELECT 'trf_{NOBODY}', account_id, amount_micros, NULL, NULL, created_at FROM entries WHERE transfer_id = {A_CHARGE} AND seq IS NULL"),
            Rule::EntriesBalance,
            "entry of trf_0000",
        ),
        (of_entry("seq = NULL", "seq IS NOT NULL"), Rule::RunningBalance, "transfer trf_"),
        (of_entry("seq = 7", "seq IS NULL"), Rule::RunningBalance, "transfer trf_"),
        (of_entry("seq = seq + 1000", "seq IS NOT NULL"), Rule::RunningBalance, "entry "),
        (of_entry("balance_after_micros = balance_after_micros - 1", "seq IS NOT NULL"), Rule::RunningBalance, "entry "),
        (all("UPDATE wallet_balances SET posted_micros = posted_micros + 1 WHERE version > 2"), Rule::WalletBalance, "wallet acc_"),
        (all("UPDATE wallet_balances SET version = version + 1 WHERE version > 2"), Rule::WalletBalance, "wallet acc_"),
        (all("UPDATE wallet_balances SET held_micros = held_micros + 1 WHERE held_micros > 0"), Rule::Hold, "wallet acc_"),
        (all("DELETE FROM wallet_balances WHERE version > 2"), Rule::Account, "account acc_"),
        (format!("INSERT INTO wallet_balances VALUES ('acc_{NOBODY}', 0, 0, 0)"), Rule::Complete, "wallet balances"),
        (all("DELETE FROM holds WHERE state = 'pending'"), Rule::Hold, "wallet acc_"),
        (all("UPDATE holds SET amount_micros = amount_micros - 1 WHERE state = 'pending'"), Rule::Hold, "wallet acc_"),
        (format!("UPDATE holds SET account_id = 'acc_{NOBODY}' WHERE state = 'pending'"), Rule::Hold, "hold hld_"),
        (all("UPDATE holds SET state = 'voided' WHERE state = 'pending'"), Rule::Hold, "wallet acc_"),
        (format!("UPDATE accounts SET tenant_id = 'ten_{NOBODY}' WHERE id = (SELECT MIN(id) FROM accounts WHERE kind = 'wallet_cash')"), Rule::Account, "account acc_"),
        (format!("UPDATE credit_grants SET remaining_micros = remaining_micros + 1 WHERE id = (SELECT grant_id FROM transfers WHERE id = {A_CHARGE})"), Rule::Grant, "grant grn_"),
        (format!("UPDATE credit_grants SET granted_micros = granted_micros + 1 WHERE id = (SELECT grant_id FROM transfers WHERE id = {A_CHARGE})"), Rule::Grant, "grant grn_"),
        (of_charge("grant_id = NULL"), Rule::Grant, "transfer trf_"),
        (format!("UPDATE transfers SET grant_id = 'grn_{NOBODY}' WHERE kind = 'grant_expiry'"), Rule::Grant, "transfer trf_"),
        (all("UPDATE transfers SET reverses = (SELECT MIN(id) FROM transfers WHERE kind = 'top_up') WHERE kind = 'reversal'"), Rule::Reversal, "transfer trf_"),
        (
            all("UPDATE transfers SET reverses = (SELECT o.id FROM transfers o WHERE o.kind = 'usage' AND o.debit_account_id = transfers.credit_account_id AND o.id <> transfers.reverses ORDER BY o.amount_micros LIMIT 1) WHERE kind = 'reversal'"),
            Rule::Reversal,
            "transfer trf_",
        ),
        (format!("UPDATE transfers SET reverses = 'trf_{NOBODY}' WHERE kind = 'reversal'"), Rule::Complete, "reversals"),
        (of_segment("micros_per_hour = micros_per_hour + 1"), Rule::SegmentPrice, "segment seg_"),
        (of_segment("price_version = price_version + 1"), Rule::SegmentPrice, "segment seg_"),
        (all("UPDATE price_book SET micros_per_hour = micros_per_hour + 1"), Rule::SegmentPrice, "segment seg_"),
        (all("UPDATE price_book SET effective_from = effective_from - 1000000 WHERE version = 2"), Rule::SegmentPrice, "segment seg_"),
        (all("UPDATE price_book SET effective_from = 0 WHERE version = 2"), Rule::PriceBook, "price book"),
        (of_piece("from_mono_ms = from_mono_ms + 1"), Rule::Evidence, "segment seg_"),
        (of_piece("excused_ms = 1"), Rule::Evidence, "segment seg_"),
        (of_piece("segment_id = NULL"), Rule::Evidence, "segment seg_"),
        (of_piece(&format!("host_id = 'hst_{NOBODY}'")), Rule::Evidence, "evidence "),
        (format!("DELETE FROM meter_events WHERE {A_PIECE}"), Rule::Evidence, "segment seg_"),
        (format!("UPDATE leases SET host_id = 'hst_{NOBODY}'"), Rule::Evidence, "evidence "),
        (of_segment("covered = '[[1,2]]'"), Rule::Evidence, "segment seg_"),
        (of_segment("covered = 'all of it'"), Rule::Readable, "segment after"),
        (of_segment("settled_seconds = settled_seconds + 100000"), Rule::Evidence, "segment seg_"),
        (of_segment("close_reason = NULL"), Rule::Evidence, "segment seg_"),
        (of_segment("ended_at = started_at - 1"), Rule::Evidence, "segment seg_"),
        (of_segment(&format!("tenant_id = 'ten_{NOBODY}'")), Rule::Evidence, "segment seg_"),
        (of_segment("settled_seconds = settled_seconds - 1"), Rule::Charge, "segment seg_"),
        (of_segment("settled_micros = settled_micros + 1"), Rule::Charge, "segment seg_"),
        (of_charge("segment_id = NULL"), Rule::Charge, "transfer trf_"),
        (of_charge(&format!("segment_id = 'seg_{NOBODY}'")), Rule::Charge, "transfer trf_"),
        (of_charge(&format!("segment_id = (SELECT MAX(id) FROM usage_segments WHERE id <> {A_SEGMENT})")), Rule::Charge, "transfer trf_"),
        (
            // Twice two instances ran side by side; now on one card.
            all("UPDATE meter_events SET gpu_uuid = (SELECT MIN(meter_gpu_uuid) FROM usage_segments);
                 UPDATE usage_segments SET meter_gpu_uuid = (SELECT MIN(meter_gpu_uuid) FROM whole_usage_segments)"),
            Rule::Overlap,
            "segment seg_",
        ),
    ]
}

async fn every_corruption_is_named(api: Api) {
    let world = busy(api).await;
    let store = &world.api.server.state().store;
    audit(store, None).await.unwrap();
    let mut hand = Hand::reach(&world).await;
    let (mut rules, mut wrong) = (std::collections::BTreeSet::new(), Vec::new());
    for (sql, rule, row) in plants() {
        assert!(hand.run(&sql).await > 0, "nothing changed: {sql}");
        match audit(store, None).await {
            Err(AuditFailed::Different(found)) if found.rule == rule && found.row.starts_with(row) => {
                assert_eq!(found.to_string().lines().count(), 1);
            }
            other => wrong.push(format!("{sql}\n    wanted {rule} of {row}: {other:?}")),
        }
        rules.insert(rule);
        hand.heal().await;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    audit(store, None).await.unwrap();
    // Totals differ only where a pass before them was wrong itself.
    let never: Vec<Rule> = Rule::ALL.into_iter().filter(|rule| !rules.contains(rule)).collect();
    assert_eq!(never, [Rule::Total]);
}
