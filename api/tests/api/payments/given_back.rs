//! M17 over HTTP: what was charged goes back to the buckets charged, never more than it was, and promotional credit never as cash.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::till::{TOPUPS, consistent, yuan};
use crate::fleet::world::World;
use crate::harness::{Api, Person};

on_both! {
    m17_a_charge_goes_back_to_the_buckets_that_paid_it;
    m17_racing_refunds_of_a_charge_never_exceed_it;
    an_expired_bucket_comes_back_as_credit_for_a_month;
}

/// A customer whose Pool-96 ran for so long that 10.00 of trial credit and some cash were charged; the charge.
async fn charged(world: &mut World, cash: &str, seconds: i64) -> (Person, Value) {
    let person = world.spender().await;
    world.api.post_once(&person.access, TOPUPS, "cash", yuan(cash)).await.is(201);
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    for _ in 0..seconds / 100 {
        world.pass(100).await;
    }
    world.stop(&person, &id).await;
    world.pass(1).await;
    world.tick().await;
    let charge = world.charges(&person).await[0].clone();
    (person, charge)
}

fn order(person: &Person, charge: &Value, amount: Option<&str>) -> Value {
    let mut order =
        json!({"tenant_id": person.tenant_id, "charge_id": charge["id"], "reason": "the pool was slow"});
    if let Some(amount) = amount {
        order["amount"] = json!({"amount": amount, "currency": "CNY"});
    }
    order
}

fn micros(amount: &Value) -> i64 {
    let (yuan, rest) = amount["amount"].as_str().unwrap().split_once('.').unwrap();
    yuan.parse::<i64>().unwrap() * 1_000_000 + format!("{rest:0<6}").parse::<i64>().unwrap()
}

async fn m17_a_charge_goes_back_to_the_buckets_that_paid_it(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let (person, charge) = charged(&mut world, "50.00", 18_000).await;
    let operator = world.operator.access.clone();
    let cost = micros(&charge["amount"]);
    assert!(cost > 11_000_000, "cash was touched: {charge}");
    let before = world.wallet(&person).await;
    assert_eq!(before["credit"]["amount"], "0.00");
    // A yuan back: the newest was paid in cash.
    let refund = world
        .api
        .post_once(&operator, "/v1/admin/refunds", "a", order(&person, &charge, Some("1.00")))
        .await
        .is(201);
    assert_eq!((&refund["state"], &refund["charge_id"]), (&json!("settled"), &charge["id"]));
    let wallet = world.wallet(&person).await;
    assert_eq!(micros(&wallet["cash"]), micros(&before["cash"]) + 1_000_000);
    assert_eq!(wallet["credit"]["amount"], "0.00");
    // All of the rest: cash is whole again, and what was trial credit is trial credit.
    let rest =
        world.api.post_once(&operator, "/v1/admin/refunds", "b", order(&person, &charge, None)).await.is(201);
    assert_eq!(micros(&rest["amount"]), cost - 1_000_000);
    let wallet = world.wallet(&person).await;
    assert_eq!(
        (&wallet["cash"]["amount"], &wallet["credit"]["amount"]),
        (&json!("50.00"), &json!("10.00")),
        "{wallet}"
    );
    for (key, amount) in [("c", Some("0.000001")), ("d", None)] {
        let again =
            world.api.post_once(&operator, "/v1/admin/refunds", key, order(&person, &charge, amount)).await;
        again.fails(409, "not_refundable");
    }
    let listed = world.api.get(&person.access, "/v1/refunds").await.is(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert_eq!(listed["items"][0]["reason"], "the pool was slow");
    let reversals = world.api.get(&person.access, "/v1/ledger?limit=100").await.is(200);
    let reversal = reversals["items"]
        .as_array()
        .unwrap()
        .iter()
        .find(|line| line["kind"] == "reversal")
        .unwrap()
        .clone();
    assert_eq!(reversal["segment_id"], charge["id"], "{reversal}");
    let absent =
        json!({"tenant_id": person.tenant_id, "charge_id": "seg_01jf3z6v5w9x8y7z6a5b4c3d2e", "reason": "x"});
    world.api.post_once(&operator, "/v1/admin/refunds", "e", absent).await.fails(404, "not_found");
    let neither = json!({"tenant_id": person.tenant_id, "reason": "x"});
    world.api.post_once(&operator, "/v1/admin/refunds", "f", neither).await.fails(422, "invalid_request");
    consistent(&world.api).await;
}

async fn m17_racing_refunds_of_a_charge_never_exceed_it(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let (person, charge) = charged(&mut world, "50.00", 7_200).await;
    let cost = micros(&charge["amount"]);
    let keys: Vec<String> = (0..30).map(|number| format!("race{number}")).collect();
    let calls = keys.iter().map(|key| {
        world.api.post_once(
            &world.operator.access,
            "/v1/admin/refunds",
            key,
            order(&person, &charge, Some("0.70")),
        )
    });
    let accepted = join_all(calls).await.into_iter().filter(|got| got.status == 201).count();
    assert_eq!(i64::try_from(accepted).unwrap(), cost / 700_000, "as many as fit into {cost}");
    let wallet = world.wallet(&person).await;
    let back = i64::try_from(accepted).unwrap() * 700_000;
    assert_eq!(micros(&wallet["credit"]) + micros(&wallet["cash"]), 60_000_000 - cost + back);
    consistent(&world.api).await;
}

async fn an_expired_bucket_comes_back_as_credit_for_a_month(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let expires = tarn_api::http::instant::Instant(world.now().plus_seconds(20_000));
    let credit = json!({
        "tenant_id": person.tenant_id, "kind": "promo", "amount": {"amount": "30.00", "currency": "CNY"},
        "expires_at": expires, "reason": "hello",
    });
    world.api.post_once(&world.operator.access, "/v1/admin/credits", "promo", credit).await.is(201);
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    for _ in 0..180 {
        world.pass(100).await;
    }
    world.stop(&person, &id).await;
    world.pass(1).await;
    world.tick().await;
    let charge = world.charges(&person).await[0].clone();
    assert!(micros(&charge["amount"]) > 10_000_000, "promo credit was touched: {charge}");
    world.pass(5_000).await;
    let before = world.wallet(&person).await;
    assert_eq!(before["credit"]["amount"], "0.00", "what was left has expired: {before}");
    let operator = world.operator.access.clone();
    world.api.post_once(&operator, "/v1/admin/refunds", "a", order(&person, &charge, None)).await.is(201);
    let wallet = world.wallet(&person).await;
    assert_eq!(wallet["cash"]["amount"], "0.00", "promotional credit never becomes cash");
    assert_eq!(micros(&wallet["credit"]), micros(&charge["amount"]));
    world.pass(31 * 24 * 3600).await;
    world.tick().await;
    assert_eq!(world.wallet(&person).await["credit"]["amount"], "10.00", "only the renewed bucket has ended");
    consistent(&world.api).await;
}
