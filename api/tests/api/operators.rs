//! What operators do: every deed leaves a line in a log that shows tampering, and much credit takes two of them.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _};
use tarn_api::app::operators::credits::CreditRules;
use tarn_api::app::operators::log;
use tarn_api::clock::Clock;
use tarn_api::config::Config;
use tarn_api::workers;
use tarn_billing::money::Micros;

use crate::database::Fresh;
use crate::fleet::world::World;
use crate::harness::{Api, Got, Person};

on_both! {
    every_deed_of_an_operator_leaves_a_line;
    a_log_that_was_edited_does_not_verify;
    credit_without_a_limit_is_given_at_once;
}

fn cny(amount: &str) -> Value {
    json!({"amount": amount, "currency": "CNY"})
}

fn credit(tenant_id: &str, amount: &str) -> Value {
    json!({"tenant_id": tenant_id, "kind": "promo", "amount": cny(amount), "reason": "a good turn"})
}

async fn lines(api: &Api, operator: &Person) -> Vec<Value> {
    let page = api.get(&operator.access, "/v1/admin/log?limit=100").await.is(200);
    page["items"].as_array().unwrap().clone()
}

/// Operations of the document that change something for operators.
fn mutations() -> BTreeSet<String> {
    let document = serde_json::to_value(tarn_api::http::document()).unwrap();
    let mut found = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in ["post", "put", "patch", "delete"] {
            if path.starts_with("/v1/admin") && item.get(method).is_some() {
                found.insert(item[method]["operationId"].as_str().unwrap().to_owned());
            }
        }
    }
    let silent = include_str!("allowed/unlogged.txt").lines().filter(|line| !line.starts_with('#'));
    for operation in silent.filter_map(|line| line.split_whitespace().next()) {
        assert!(found.remove(operation), "no longer needed in allowed/unlogged.txt: {operation}");
    }
    found
}

async fn every_deed_of_an_operator_leaves_a_line(api: Api) {
    let world = World::with_host(api, 4).await;
    let (api, operator) = (&world.api, &world.operator);
    let person = api.person().await;
    let host = format!("/v1/admin/hosts/{}", world.agents[0].host_id);
    let gpu = format!("/v1/admin/gpus/{}", world.agents[0].uuid(0));
    let certificates = api.get(&operator.access, "/v1/admin/certificates").await.is(200);
    let certificate = certificates["items"][0]["id"].as_str().unwrap();
    let certificate = format!("/v1/admin/certificates/{certificate}");
    let because = json!({"reason": "because"});
    let deeds = [
        ("create_join_token", "join_token.create", "/v1/admin/join-tokens".into(), json!({"region": "r"})),
        ("cordon_host", "host.cordon", format!("{host}/cordon"), json!({})),
        ("uncordon_host", "host.uncordon", format!("{host}/uncordon"), json!({})),
        ("drain_host", "host.drain", format!("{host}/drain"), json!({})),
        ("rerun_certificate", "certificate.rerun", format!("{certificate}/rerun"), json!({})),
        ("revoke_certificate", "certificate.revoke", format!("{certificate}/revoke"), because.clone()),
        ("quarantine_gpu", "gpu.quarantine", format!("{gpu}/quarantine"), because.clone()),
        ("return_gpu", "gpu.return", format!("{gpu}/return"), json!({})),
    ];
    let mut logged: BTreeMap<&str, Value> = BTreeMap::new();
    for (operation, action, path, body) in deeds {
        let before = lines(api, operator).await.len();
        let got = api.post_once(&operator.access, &path, operation, body).await;
        assert!((200..300).contains(&got.status), "{operation}: {}", got.body);
        let after = lines(api, operator).await;
        assert_eq!((after.len(), &after[0]["action"]), (before + 1, &json!(action)), "{operation}");
        assert_eq!(after[0]["request_id"], got.header("x-request-id"), "{operation}");
        logged.insert(operation, after[0].clone());
    }
    let tenant = format!("/v1/admin/tenants/{}", person.tenant_id);
    let quota = json!({"quota_cards": 16, "quota_bytes": 1_u64 << 40});
    api.patch(&operator.access, &tenant, quota).await.is(200);
    logged.insert("set_quota", lines(api, operator).await[0].clone());
    api.change_price(operator, json!({"offer_id": "pool-96", "price_per_hour": cny("2.50")})).await.is(201);
    logged.insert("append_price", lines(api, operator).await[0].clone());
    let given = credit(&person.tenant_id, "1.00");
    api.post_once(&operator.access, "/v1/admin/credits", "k", given).await.is(201);
    logged.insert("give_credit", lines(api, operator).await[0].clone());
    let paid = json!({"amount": cny("5.00")});
    let paid = api.post_once(&person.access, "/v1/wallet/topups", "paid", paid).await.is(201);
    let refund =
        json!({"tenant_id": person.tenant_id, "top_up_id": paid["id"], "reason": "asked by telephone"});
    api.post_once(&operator.access, "/v1/admin/refunds", "refund", refund).await.is(201);
    logged.insert("give_refund", lines(api, operator).await[0].clone());

    for (operation, line) in &logged {
        assert_eq!(line["operator_id"], operator.user_id, "{operation}: {line}");
        assert!(line["credential_id"].as_str().unwrap().starts_with("key_"), "{operation}: {line}");
    }
    // The two that need a request that waits are in the tests of four eyes.
    let mut seen: BTreeSet<String> = logged.keys().map(|operation| (*operation).to_owned()).collect();
    seen.extend(["approve_credit".to_owned(), "reject_credit".to_owned()]);
    assert_eq!(seen, mutations(), "an operator's deed that leaves no line, or is not in this test");
    let of_host = format!("/v1/admin/log?limit=2&subject={}", world.agents[0].host_id);
    let of_host = api.get(&operator.access, &of_host).await.is(200);
    let actions: Vec<&Value> =
        of_host["items"].as_array().unwrap().iter().map(|line| &line["action"]).collect();
    assert_eq!(actions, [&json!("host.drain"), &json!("host.uncordon")]);
    let rest = format!(
        "/v1/admin/log?limit=2&subject={}&cursor={}",
        world.agents[0].host_id,
        of_host["next_cursor"].as_str().unwrap()
    );
    assert_eq!(api.get(&operator.access, &rest).await.is(200)["items"][0]["action"], "host.cordon");
    assert_eq!(log::verify(&api.server.state().store).await.unwrap(), lines(api, operator).await[0]["seq"]);
}

/// Runs SQL past the store and its guards, as someone with the database's password would.
async fn past_the_guards(api: &Api, sql: &str) {
    let url = api.server.state().config.database();
    let guards = ["operator_log_never_changes", "operator_log_never_goes"];
    if url.starts_with("postgres") {
        let mut conn = sqlx::PgConnection::connect(&url).await.unwrap();
        let drop = format!("DROP TRIGGER IF EXISTS {} ON operator_log; {sql}", guards[0]);
        sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut conn).await.unwrap();
    } else {
        let mut conn = sqlx::SqliteConnection::connect(&format!("sqlite://{url}")).await.unwrap();
        let [one, other] = guards;
        let drop = format!("DROP TRIGGER IF EXISTS {one}; DROP TRIGGER IF EXISTS {other}; {sql}");
        sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut conn).await.unwrap();
    }
}

async fn a_log_that_was_edited_does_not_verify(api: Api) {
    let operator = api.operator().await;
    for region in ["one", "two", "three", "four"] {
        api.post(&operator.access, "/v1/admin/join-tokens", json!({"region": region})).await.is(201);
    }
    let verified = async || log::verify(&api.server.state().store).await.map_err(|broken| broken.to_string());
    assert_eq!(verified().await, Ok(4));
    past_the_guards(&api, "UPDATE operator_log SET created_at = created_at + 1 WHERE seq = 2").await;
    assert_eq!(verified().await.unwrap_err(), "line 2 of the operators' log is not what was written");
    past_the_guards(&api, "UPDATE operator_log SET created_at = created_at - 1 WHERE seq = 2").await;
    assert_eq!(verified().await, Ok(4));
    past_the_guards(&api, "DELETE FROM operator_log WHERE seq = 4").await;
    assert_eq!(verified().await.unwrap_err(), "the operators' log ends at line 3 and had 4");
    past_the_guards(&api, "DELETE FROM operator_log WHERE seq = 1").await;
    assert_eq!(verified().await.unwrap_err(), "line 1 of the operators' log is missing");
}

async fn credit_without_a_limit_is_given_at_once(api: Api) {
    let (operator, person) = (api.operator().await, api.person().await);
    let huge = credit(&person.tenant_id, "100000.00");
    let given = api.post_once(&operator.access, "/v1/admin/credits", "k", huge).await.is(201);
    assert_eq!((&given["state"], &given["four_eyes"]), (&json!("given"), &json!(false)), "{given}");
    assert_eq!(given["decided_by"], operator.user_id);
    let wallet = api.get(&person.access, "/v1/wallet").await.is(200);
    assert_eq!(wallet["credit"]["amount"], "100010.00");
    let again = format!("/v1/admin/credits/{}/approve", given["id"].as_str().unwrap());
    let other = api.operator().await;
    api.post_once(&other.access, &again, "a", Value::Null).await.fails(409, "wrong_state");
}

/// A service where one operator gives 50 CNY a day alone, on both engines.
async fn careful() -> [Api; 2] {
    let rules = |config: Config| Config {
        credits: CreditRules { alone_max: Some(Micros::new(50_000_000)), request_seconds: 3600 },
        ..config
    };
    let url = Fresh::empty_postgres().await;
    let on_postgres = move |config| Config { database_url: Some(url), ..rules(config) };
    [Api::start_with(rules).await, Api::start_with(on_postgres).await]
}

async fn ask(api: &Api, operator: &Person, key: &str, tenant_id: &str, amount: &str) -> Value {
    api.post_once(&operator.access, "/v1/admin/credits", key, credit(tenant_id, amount)).await.is(201)
}

fn on(request: &Value, verb: &str) -> String {
    format!("/v1/admin/credits/{}/{verb}", request["id"].as_str().unwrap())
}

async fn credit_of(api: &Api, person: &Person) -> Value {
    api.get(&person.access, "/v1/wallet").await.is(200)["credit"]["amount"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credit_above_the_limit_takes_another_operator() {
    for api in careful().await {
        let (one, two, person) = (api.operator().await, api.operator().await, api.person().await);
        let request = ask(&api, &one, "k", &person.tenant_id, "50.01").await;
        assert_eq!(
            (&request["state"], &request["four_eyes"]),
            (&json!("pending"), &json!(true)),
            "{request}"
        );
        assert_eq!((credit_of(&api, &person).await, &request["grant_id"]), (json!("10.00"), &Value::Null));

        api.post_once(&one.access, &on(&request, "approve"), "a", Value::Null).await.fails(403, "forbidden");
        // Nor with a key of one's own.
        let key = api.key(&one, &["admin"]).await;
        api.post_once(&key, &on(&request, "approve"), "b", Value::Null).await.fails(403, "forbidden");
        api.post(&two.access, &on(&request, "approve"), Value::Null)
            .await
            .fails(400, "idempotency_key_missing");
        assert_eq!(credit_of(&api, &person).await, "10.00");

        let approved = api.post_once(&two.access, &on(&request, "approve"), "c", Value::Null).await.is(200);
        assert_eq!((&approved["state"], &approved["decided_by"]), (&json!("given"), &json!(two.user_id)));
        let again = api.post_once(&two.access, &on(&request, "approve"), "c", Value::Null).await.is(200);
        assert_eq!(again, approved, "a retry");
        api.post_once(&two.access, &on(&request, "approve"), "d", Value::Null)
            .await
            .fails(409, "wrong_state");
        api.post(&two.access, &on(&request, "reject"), json!({"reason": "no"}))
            .await
            .fails(409, "wrong_state");
        assert_eq!(credit_of(&api, &person).await, "60.01");
        let ledger = api.get(&person.access, "/v1/ledger").await.is(200);
        assert!(ledger["items"].as_array().unwrap().iter().any(|line| line["memo"] == "a good turn"));

        let trail = format!("/v1/admin/log?subject={}", request["id"].as_str().unwrap());
        let trail = api.get(&two.access, &trail).await.is(200);
        let trail: Vec<_> = trail["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| (line["action"].as_str().unwrap(), line["operator_id"].as_str().unwrap()))
            .collect();
        assert_eq!(trail, [("credit.approve", &*two.user_id), ("credit.request", &*one.user_id)]);
        let state = |state: &str| format!("/v1/admin/credits?state={state}&tenant_id={}", person.tenant_id);
        let given = api.get(&one.access, &state("given")).await.is(200);
        assert_eq!(given["items"], json!([approved]));
        assert_eq!(api.get(&one.access, &state("pending")).await.is(200)["items"], json!([]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_small_credits_are_one_large_one() {
    for api in careful().await {
        let (one, two, person) = (api.operator().await, api.operator().await, api.person().await);
        // Twelve at once of 20.00: two fit into 50.00, whoever comes first.
        let asked = (0..12).map(|number| {
            let (api, one, tenant) = (&api, &one, &person.tenant_id);
            async move { ask(api, one, &format!("k{number}"), tenant, "20.00").await }
        });
        let states = join_all(asked).await;
        let given = states.iter().filter(|request| request["state"] == "given").count();
        assert_eq!((given, credit_of(&api, &person).await), (2, json!("50.00")));
        assert_eq!(ask(&api, &one, "small", &person.tenant_id, "10.00").await["state"], "given");
        assert_eq!(ask(&api, &one, "one", &person.tenant_id, "0.01").await["state"], "pending");
        assert_eq!(
            ask(&api, &two, "two", &person.tenant_id, "0.01").await["state"],
            "given",
            "another's own"
        );
        // The next day is another one.
        api.clock.advance_seconds(24 * 3600 + 1);
        let one = api.log_in(&one.email).await;
        assert_eq!(ask(&api, &one, "tomorrow", &person.tenant_id, "50.00").await["state"], "given");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_decisions_at_once_one_stands() {
    for api in careful().await {
        let (one, person) = (api.operator().await, api.person().await);
        let others = [api.operator().await, api.operator().await, api.operator().await];
        let mut expected = 10;
        for round in 0..4 {
            let request = ask(&api, &one, &format!("k{round}"), &person.tenant_id, "100.00").await;
            let (approve, reject) = (on(&request, "approve"), on(&request, "reject"));
            let decisions = (0..12_usize).map(|number| {
                let (api, other) = (&api, &others[number % 3]);
                let (approve, reject) = (&approve, &reject);
                async move {
                    let key = format!("{round}-{number}");
                    if number % 4 == 3 {
                        api.post(&other.access, reject, json!({"reason": "no"})).await
                    } else {
                        api.post_once(&other.access, approve, &key, Value::Null).await
                    }
                }
            });
            let (stood, lost): (Vec<Got>, Vec<Got>) =
                join_all(decisions).await.into_iter().partition(|got| got.status == 200);
            assert_eq!(stood.len(), 1, "{stood:?}");
            for got in lost {
                got.fails(409, "wrong_state");
            }
            expected += if stood[0].body["state"] == "given" { 100 } else { 0 };
            assert_eq!(credit_of(&api, &person).await, format!("{expected}.00"));
            let decided = api.get(&one.access, &approve.replace("/approve", "")).await.is(200);
            assert_eq!(decided["state"], stood[0].body["state"]);
        }
        log::verify(&api.server.state().store).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_nobody_decides_expires() {
    for api in careful().await {
        let (one, two, person) = (api.operator().await, api.operator().await, api.person().await);
        let request = ask(&api, &one, "k", &person.tenant_id, "100.00").await;
        let withdrawn = ask(&api, &one, "w", &person.tenant_id, "100.00").await;
        let back =
            api.post(&one.access, &on(&withdrawn, "reject"), json!({"reason": "typing error"})).await.is(200);
        assert_eq!((&back["state"], &back["decision"]), (&json!("rejected"), &json!("typing error")));
        api.clock.advance_seconds(3601);
        let (one, two) = (api.log_in(&one.email).await, api.log_in(&two.email).await);
        let late = api.post_once(&two.access, &on(&request, "approve"), "a", Value::Null).await;
        assert!(late.fails(409, "wrong_state")["detail"].as_str().unwrap().contains("expired"));
        for _ in 0..2 {
            workers::tick_all(api.server.state(), api.clock.now()).await.unwrap();
        }
        let path = on(&request, "").trim_end_matches('/').to_owned();
        assert_eq!(api.get(&one.access, &path).await.is(200)["state"], "expired");
        let trail = format!("/v1/admin/log?subject={}", request["id"].as_str().unwrap());
        let trail = api.get(&two.access, &trail).await.is(200);
        assert_eq!(trail["items"].as_array().unwrap().len(), 2, "{trail}");
        assert_eq!(
            (&trail["items"][0]["action"], &trail["items"][0]["credential_id"]),
            (&json!("credit.expire"), &json!("worker"))
        );
        let person = api.log_in(&person.email).await;
        assert_eq!(credit_of(&api, &person).await, "10.00");
    }
}
