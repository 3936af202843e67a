//! Statements and revenue: exact, and the same as the ledger.

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use serde_json::Value;
use tarn_api::app::reports::statement::{self, StatementError};
use tarn_api::app::reports::{Period, revenue};
use tarn_api::clock::Clock;
use tarn_api::http::instant::Instant;
use tarn_billing::account::{Account, AccountKind};
use tarn_billing::money::Micros;
use tarn_billing::transfer::TransferKind;
use tarn_protocol::ids::{TenantId, TransferId};
use tarn_protocol::units::Timestamp;
use tarn_rows::TenantScope;
use tarn_rows::ledger::{Posting, TransferRow};
use tarn_rows::reports::LedgerPlace;

use crate::harness::{Api, Person};

on_both! {
    consecutive_statements_chain_and_are_the_ledger;
    a_statement_is_read_page_by_page_and_as_a_table;
}

const SPAN_SECONDS: i64 = 40;

/// What one step moves: how many seconds after the start, what, and how much.
fn steps() -> impl Strategy<Value = Vec<(i64, usize, i64)>> {
    prop::collection::vec((0..SPAN_SECONDS, 0_usize..6, 1_i64..3_000_000), 30..60)
}

/// Half-open consecutive periods: where each ends.
fn cuts() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::btree_set(0..=SPAN_SECONDS, 3..9).prop_map(|cuts| cuts.into_iter().collect())
}

/// Moves money of `tenant` as the steps say; what a wallet does not cover does not move.
async fn move_money(api: &Api, tenant: &TenantId, start: Timestamp, steps: &[(i64, usize, i64)]) {
    use AccountKind as A;
    use TransferKind as T;
    let own = |kind| Account::new(kind, Some(tenant)).unwrap();
    let system = |kind| Account::new(kind, None).unwrap();
    for (number, (second, what, micros)) in steps.iter().enumerate() {
        let (kind, debit, credit) = match what {
            0 => (T::TopUp, system(A::TopupClearing), own(A::WalletCash)),
            1 => (T::PromoCredit, system(A::PromoGrants), own(A::WalletPromo)),
            2 => (T::Usage, own(A::WalletCash), system(A::RevenueGpu)),
            3 => (T::Usage, own(A::WalletPromo), system(A::RevenueStorage)),
            4 => (T::Usage, own(A::Receivable), system(A::RevenueGpu)),
            _ => (T::SlaCredit, system(A::Sla), own(A::WalletPromo)),
        };
        let at = start.plus_seconds(*second);
        let transfer = TransferRow {
            // In no order within a millisecond.
            id: TransferId::new(
                at,
                u128::try_from(start.as_micros() * 1009).unwrap() + number as u128 * 7919 % 1009,
            ),
            kind,
            debit_account_id: debit.id().clone(),
            credit_account_id: credit.id().clone(),
            amount_micros: Micros::new(*micros),
            tenant_id: Some(tenant.clone()),
            segment_id: None,
            grant_id: None,
            reverses: None,
            external_provider: None,
            external_id: None,
            memo: format!("step {number}, \"quoted\"\n=1+1"),
            created_at: at,
        };
        let posted = api
            .server
            .state()
            .store
            .write(move |tx| Box::pin(async move { tx.post_transfer(&transfer).await }));
        assert!(matches!(posted.await.unwrap(), Posting::Posted | Posting::Insufficient));
    }
}

async fn consecutive_statements_chain_and_are_the_ledger(api: Api) {
    let mut runner = TestRunner::deterministic();
    for _ in 0..6 {
        let (steps, cuts) = (steps(), cuts()).new_tree(&mut runner).unwrap().current();
        let person = api.person().await;
        let tenant: TenantId = person.tenant_id.parse().unwrap();
        let scope = TenantScope::proven(tenant.clone());
        let start = api.clock.now();
        move_money(&api, &tenant, start, &steps).await;
        let (asked, ends) = (scope.clone(), cuts.clone());
        let read = api.server.state().store.snapshot(move |tx| {
            Box::pin(async move {
                let mut frames = Vec::new();
                let mut movements = Vec::new();
                // From before everything to after it.
                let edges = std::iter::once(-1_000_000).chain(ends).chain([SPAN_SECONDS + 1]);
                let edges: Vec<Timestamp> = edges.map(|second| start.plus_seconds(second)).collect();
                for pair in edges.windows(2) {
                    let period = Period { from: pair[0], to: pair[1] };
                    frames.push(statement::frame(tx, &asked, period).await?);
                    let place = LedgerPlace::before(period.from);
                    movements.push(statement::movements(tx, &asked, (&place, period.to), 1000).await?);
                }
                Ok::<_, StatementError>((frames, movements, tx.balances(&asked).await?))
            })
        });
        let (frames, movements, balances) = read.await.unwrap();
        assert_eq!(frames[0].total.opening, Micros::ZERO);
        for pair in frames.windows(2) {
            assert_eq!(pair[0].total.closing, pair[1].total.opening);
            for (one, other) in pair[0].accounts.iter().zip(&pair[1].accounts) {
                assert_eq!((one.0, one.1.closing), (other.0, other.1.opening));
            }
        }
        // The last closing balances are what the wallets hold.
        let last = frames.last().unwrap();
        for balance in &balances {
            let (_, told) = last.accounts.iter().find(|(kind, _)| *kind == balance.kind).unwrap();
            assert_eq!(told.closing, balance.posted_micros, "{}", balance.kind);
        }
        // Movements lead from each opening to each closing, and are every transfer, once and in order.
        for (frame, movements) in frames.iter().zip(&movements) {
            let mut balance = frame.total.opening;
            for movement in movements {
                balance = balance.checked_add(movement.amount).unwrap();
                assert_eq!(movement.balance, balance);
            }
            assert_eq!(balance, frame.total.closing);
        }
        let all: Vec<_> = movements.iter().flatten().map(|one| (one.at, one.transfer_id.clone())).collect();
        let mut sorted = all.clone();
        sorted.sort();
        sorted.dedup();
        assert_eq!(all, sorted);
        let mut reader = api.server.state().store.reader().await.unwrap();
        let ledger = reader.transfers(&scope, tarn_rows::Page::first(1000)).await.unwrap();
        assert_eq!(all.len(), ledger.len());
    }
    // Revenue of the whole, and of its halves, is what the accounts hold.
    let now = api.clock.now().plus_seconds(SPAN_SECONDS + 1);
    let of = async |from: Timestamp, to: Timestamp| {
        let read = api
            .server
            .state()
            .store
            .snapshot(move |tx| Box::pin(async move { revenue::revenue(tx, Period { from, to }).await }));
        read.await.unwrap().total
    };
    let (begin, middle) = (now.plus_seconds(-1_000_000), now.plus_seconds(-SPAN_SECONDS / 2));
    let (whole, early, late) = (of(begin, now).await, of(begin, middle).await, of(middle, now).await);
    assert_eq!(whole.net.get(), early.net.get() + late.net.get());
    assert_eq!(whole.net.get(), whole.of_cash.get() + whole.of_credit.get() + whole.of_debt.get());
    assert!(whole.of_cash > Micros::ZERO && whole.of_credit > Micros::ZERO && whole.of_debt > Micros::ZERO);
}

async fn get_as_text(api: &Api, credential: &str, path: &str) -> String {
    let got = api.get(credential, path).await;
    assert_eq!(got.header("content-type"), "text/csv; charset=utf-8");
    got.is(200).as_str().unwrap().to_owned()
}

async fn a_statement_is_read_page_by_page_and_as_a_table(api: Api) {
    let person = api.person().await;
    let tenant: TenantId = person.tenant_id.parse().unwrap();
    let start = api.clock.now();
    let steps: Vec<_> = (0..37)
        .map(|number| (number % 7, usize::try_from(number % 2).unwrap(), 1_000_001 + number))
        .collect();
    move_money(&api, &tenant, start, &steps).await;
    api.clock.advance_seconds(600);
    let operator = api.operator().await;
    let (from, to) = (Instant(start), Instant(start.plus_seconds(60)));
    let query = format!("from={}&to={}", rfc(from), rfc(to));
    let own = format!("/v1/statement?{query}");
    let whole = api.get(&person.access, &format!("{own}&limit=100")).await.is(200);
    assert_eq!(
        (whole["items"].as_array().unwrap().len(), &whole["final"]),
        (37, &Value::Bool(true)),
        "{whole}"
    );
    assert_eq!(whole["total"]["opening"]["amount"], "10.00", "the trial credit came before");

    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api.get(&person.access, &format!("{own}&limit=5{cursor}")).await.is(200);
        assert_eq!(page["total"], whole["total"]);
        paged.extend(page["items"].as_array().unwrap().clone());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(Value::Array(paged), whole["items"]);
    assert_eq!(whole["items"][36]["balance"], whole["total"]["closing"]);

    let path = format!("/v1/admin/tenants/{}/statement?{query}", person.tenant_id);
    assert_eq!(api.get(&operator.access, &format!("{path}&limit=100")).await.is(200), whole);
    let text = get_as_text(&api, &operator.access, &format!("{path}&format=csv")).await;
    assert_eq!(text, get_as_text(&api, &person.access, &format!("{own}&format=csv")).await);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let lines: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(lines.len(), 37 + 2);
    assert_eq!((&lines[0][2], &lines[0][5]), ("opening", "10.00"));
    assert_eq!(
        (&lines[38][2], &lines[38][5]),
        ("closing", whole["total"]["closing"]["amount"].as_str().unwrap())
    );
    for (line, item) in lines[1..38].iter().zip(whole["items"].as_array().unwrap()) {
        let told = [&line[1], &line[4], &line[5], &line[10]];
        let expected = ["transfer_id", "amount", "balance", "memo"].map(|field| match &item[field] {
            Value::Object(amount) => amount["amount"].as_str().unwrap(),
            text => text.as_str().unwrap(),
        });
        assert_eq!(told, expected);
    }
    refuses_wrong_periods(&api, &person, &operator, start).await;
}

async fn refuses_wrong_periods(api: &Api, person: &Person, operator: &Person, start: Timestamp) {
    let ahead = rfc(Instant(api.clock.now().plus_seconds(60)));
    let back = rfc(Instant(start.plus_seconds(-10)));
    for (query, pointer) in [
        (format!("to={ahead}"), "?to"),
        (format!("from={ahead}"), "?from"),
        (format!("from={}&to={back}", rfc(Instant(start))), "?from"),
    ] {
        let refused =
            api.get(&person.access, &format!("/v1/statement?{query}")).await.fails(422, "invalid_request");
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{query}");
    }
    let fresh = api.get(&person.access, "/v1/statement").await.is(200);
    assert_eq!(fresh["final"], Value::Bool(false), "a period that ends now may gain a movement");
    let nobody = "/v1/admin/tenants/ten_01jf3z6v5w9x8y7z6a5b4c3d2e/statement";
    for query in ["", "?format=csv"] {
        api.get(&operator.access, &format!("{nobody}{query}")).await.fails(404, "not_found");
    }
}

fn rfc(at: Instant) -> String {
    serde_json::to_value(at).unwrap().as_str().unwrap().to_owned()
}
