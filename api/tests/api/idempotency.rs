//! M14, M15, B2: one key, one effect, one answer.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::harness::Api;

on_both! {
    b2_a_hundred_equal_topups_at_once_credit_once;
    b2_twins_without_a_key_are_refused_and_credit_nothing;
    a_key_is_required_and_bound_to_its_request_and_its_tenant;
    refusals_are_replayed_too;
}

const TOPUPS: &str = "/v1/wallet/topups";

fn yuan(amount: &str) -> Value {
    json!({"amount": {"amount": amount, "currency": "CNY"}})
}

async fn repeat_location(api: &Api, access: &str) -> String {
    api.post_once(access, TOPUPS, "one-and-only", yuan("50.00")).await.header("location").to_owned()
}

async fn cash(api: &Api, access: &str) -> String {
    api.get(access, "/v1/wallet").await.is(200)["cash"]["amount"].as_str().unwrap().to_owned()
}

async fn b2_a_hundred_equal_topups_at_once_credit_once(api: Api) {
    let person = api.person().await;
    let calls = (0..100).map(|_| api.post_once(&person.access, TOPUPS, "one-and-only", yuan("50.00")));
    let mut statuses = BTreeMap::new();
    let mut bodies = Vec::new();
    for got in futures_util::future::join_all(calls).await {
        *statuses.entry(got.status).or_insert(0) += 1;
        match got.status {
            201 => bodies.push(got.body),
            409 => drop(got.fails(409, "idempotency_key_in_flight")),
            other => panic!("{other}: {}", got.body),
        }
    }
    assert!(statuses[&201] >= 1, "{statuses:?}");
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    let repeat = api.post_once(&person.access, TOPUPS, "one-and-only", yuan("50.00")).await;
    assert_eq!(repeat.header("idempotency-replayed"), "true");
    assert_eq!(repeat.is(201), bodies[0]);
    assert_eq!(cash(&api, &person.access).await, "50.00");
    let listed = api.get(&person.access, TOPUPS).await.is(200);
    assert_eq!(listed["items"], json!([bodies[0]]));
    let location = repeat_location(&api, &person.access).await;
    assert_eq!(api.get(&person.access, &location).await.is(200), bodies[0]);
    let topups = api.get(&person.access, "/v1/ledger").await.is(200)["items"].clone();
    assert_eq!(topups.as_array().unwrap().iter().filter(|line| line["kind"] == "top_up").count(), 1);
}

async fn b2_twins_without_a_key_are_refused_and_credit_nothing(api: Api) {
    let person = api.person().await;
    let twins = (0..2).map(|_| api.post(&person.access, TOPUPS, yuan("50.00")));
    for got in futures_util::future::join_all(twins).await {
        got.fails(400, "idempotency_key_missing");
    }
    let order = json!({"offer_id": "pool-96"});
    api.post(&person.access, "/v1/instances", order).await.fails(400, "idempotency_key_missing");
    assert_eq!(cash(&api, &person.access).await, "0.00");
    assert_eq!(api.get(&person.access, TOPUPS).await.is(200)["items"], json!([]));
}

async fn a_key_is_required_and_bound_to_its_request_and_its_tenant(api: Api) {
    let (person, other) = (api.person().await, api.person().await);
    api.post(&person.access, TOPUPS, yuan("5.00")).await.fails(400, "idempotency_key_missing");
    api.post_once(&person.access, TOPUPS, "", yuan("5.00")).await.fails(400, "malformed_request");
    let first = api.post_once(&person.access, TOPUPS, "k", yuan("5.00")).await.is(201);
    api.post_once(&person.access, TOPUPS, "k", yuan("6.00")).await.fails(422, "idempotency_key_reused");
    assert_eq!(api.post_once(&person.access, TOPUPS, "\"k\"", yuan("5.00")).await.is(201), first);
    let theirs = api.post_once(&other.access, TOPUPS, "k", yuan("5.00")).await.is(201);
    assert_ne!(theirs["id"], first["id"]);
    api.post_once(&person.access, TOPUPS, "k2", yuan("5.00")).await.is(201);
    assert_eq!(cash(&api, &person.access).await, "10.00");
}

async fn refusals_are_replayed_too(api: Api) {
    let operator = api.operator().await;
    let credit = json!({
        "tenant_id": "ten_01jf3z6v5w9x8y7z6a5b4c3d2e", "kind": "promo", "reason": "x",
        "amount": {"amount": "1.00", "currency": "CNY"},
    });
    let first = api
        .post_once(&operator.access, "/v1/admin/credits", "k", credit.clone())
        .await
        .fails(404, "not_found");
    let second = api.post_once(&operator.access, "/v1/admin/credits", "k", credit).await;
    assert_eq!(second.header("idempotency-replayed"), "true");
    assert_eq!(second.fails(404, "not_found")["request_id"], first["request_id"]);
}
