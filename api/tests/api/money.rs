//! Wallet, price book and credits, from outside.

use serde_json::{Value, json};
use tarn_api::http::instant::Instant;

use crate::fleet::world::World;
use crate::harness::Api;

fn cny(amount: &str) -> Value {
    json!({"amount": amount, "currency": "CNY"})
}

#[tokio::test]
async fn topups_have_bounds_and_need_a_provider() {
    let api = Api::start().await;
    let person = api.person().await;
    for (number, amount) in ["0.00", "-5.00", "0.99", "100000.01"].into_iter().enumerate() {
        let got = api
            .post_once(
                &person.access,
                "/v1/wallet/topups",
                &format!("k{number}"),
                json!({"amount": cny(amount)}),
            )
            .await;
        got.fails(422, "invalid_request");
    }
    for amount in ["1e3", "1.0000001", "", "１"] {
        let got =
            api.post_once(&person.access, "/v1/wallet/topups", "k", json!({"amount": cny(amount)})).await;
        assert_eq!(got.fails(422, "invalid_request")["errors"][0]["pointer"], "/amount/amount");
    }
    let dollars = json!({"amount": {"amount": "5.00", "currency": "USD"}});
    api.post_once(&person.access, "/v1/wallet/topups", "k", dollars).await.fails(422, "invalid_request");

    let closed = Api::start_with(|config| tarn_api::config::Config { local_payments: false, ..config }).await;
    let person = closed.person().await;
    let got =
        closed.post_once(&person.access, "/v1/wallet/topups", "k", json!({"amount": cny("5.00")})).await;
    got.fails(403, "payments_closed");
    assert_eq!(closed.get(&person.access, "/v1/wallet").await.is(200)["cash"]["amount"], "0.00");
}

#[tokio::test]
async fn operators_give_credit_that_the_tenant_sees() {
    let api = Api::start().await;
    let (operator, person) = (api.operator().await, api.person().await);
    // Ids of one millisecond are in no order.
    api.clock.advance_seconds(1);
    let credit = json!({"tenant_id": person.tenant_id, "kind": "promo", "amount": cny("20.00"), "reason": "welcome back"});
    api.post_once(&operator.access, "/v1/admin/credits", "k", credit).await.is(201);
    let wallet = api.get(&person.access, "/v1/wallet").await.is(200);
    assert_eq!(wallet["credit"]["amount"], "30.00");
    let ledger = api.get(&person.access, "/v1/ledger").await.is(200);
    assert_eq!(ledger["items"][0]["memo"], "welcome back");
    assert_eq!(ledger["items"][0]["balance_after"]["amount"], "30.00");
}

#[tokio::test]
async fn quotas_are_set_by_operators() {
    let api = Api::start().await;
    let (operator, person) = (api.operator().await, api.person().await);
    let path = format!("/v1/admin/tenants/{}", person.tenant_id);
    let quota = json!({"quota_cards": 16, "quota_bytes": 1_u64 << 40});
    api.patch(&operator.access, &path, quota.clone()).await.is(200);
    let own = api.get(&person.access, &format!("/v1/tenants/{}", person.tenant_id)).await.is(200);
    assert_eq!((&own["quota_cards"], &own["quota_bytes"]), (&quota["quota_cards"], &quota["quota_bytes"]));
    api.patch(&operator.access, &path, json!({"quota_cards": -1, "quota_bytes": 1}))
        .await
        .fails(422, "invalid_request");
    api.patch(&operator.access, &path, json!({"quota_cards": 1, "quota_bytes": u64::MAX}))
        .await
        .fails(422, "invalid_request");
}

#[tokio::test]
async fn a_topup_extends_what_runs_in_its_own_commit() {
    let mut world = World::with_host(Api::start().await, 8).await;
    let person = world.api.person().await;
    world.create(&person, "pool-96").await;
    world.pass(1).await;
    let until = |wallet: Value| -> Instant { serde_json::from_value(wallet["exhausts_at"].clone()).unwrap() };
    let before = until(world.wallet(&person).await);
    let wallet = world.wallet(&person).await;
    assert_eq!(wallet["burn_per_hour"], cny("2.40"));

    world
        .api
        .post_once(&person.access, "/v1/wallet/topups", "k", json!({"amount": cny("2.40")}))
        .await
        .is(201);
    let after = until(world.wallet(&person).await);
    assert_eq!(after.0.micros_since(before.0) / 1_000_000, 3_600, "an hour's price buys an hour, at once");
}
