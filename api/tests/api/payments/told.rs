//! B5 and M3: what a customer is told of its money before and after it ends, and what it can owe at most.

use serde_json::{Value, json};

use super::till::{TOPUPS, consistent, yuan};
use crate::fleet::world::World;
use crate::harness::{Api, Person};

on_both! {
    b5_a_day_and_an_hour_before_the_end_and_once_each;
    b4_what_keeps_costing_while_stopped_is_told_once_a_day;
    m3_what_is_proven_after_the_end_is_owed_up_to_a_bound_and_paid_first;
}

async fn notices(world: &World, person: &Person) -> Vec<Value> {
    let page = world.api.get(&person.access, "/v1/notices?limit=100").await.is(200);
    let mut items = page["items"].as_array().unwrap().clone();
    items.reverse();
    items
}

async fn kinds(world: &World, person: &Person) -> Vec<String> {
    notices(world, person).await.iter().map(|item| item["type"].as_str().unwrap().to_owned()).collect()
}

async fn b5_a_day_and_an_hour_before_the_end_and_once_each(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.spender().await;
    // 70.00 at 2.40 an hour: 29 hours and 10 minutes.
    world.api.post_once(&person.access, TOPUPS, "a", yuan("60.00")).await.is(201);
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    for _ in 0..5 {
        world.pass(3600).await;
    }
    assert!(kinds(&world, &person).await.is_empty(), "24 hours and 10 minutes are left");
    for _ in 0..3 {
        world.pass(3600).await;
    }
    assert_eq!(kinds(&world, &person).await, ["balance.low_24h"], "told once");
    let told = notices(&world, &person).await[0].clone();
    assert_eq!(told["detail"]["burn_per_hour"], "2.40", "{told}");
    let left = told["detail"]["seconds_left"].as_i64().unwrap();
    assert!((22 * 3600..24 * 3600).contains(&left), "{told}");
    // Money that lifts it above a day arms it again; money that does not, does not.
    world.api.post_once(&person.access, TOPUPS, "b", yuan("2.40")).await.is(201);
    world.pass(60).await;
    assert_eq!(kinds(&world, &person).await.len(), 1);
    world.api.post_once(&person.access, TOPUPS, "c", yuan("9.60")).await.is(201);
    for _ in 0..4 {
        world.pass(3600).await;
    }
    assert_eq!(kinds(&world, &person).await, ["balance.low_24h"; 2]);
    for _ in 0..21 {
        world.pass(3600).await;
    }
    assert_eq!(kinds(&world, &person).await, ["balance.low_24h"; 2], "more than an hour is left");
    world.pass(3600).await;
    world.pass(60).await;
    assert_eq!(kinds(&world, &person).await, ["balance.low_24h", "balance.low_24h", "balance.low_1h"]);
    world.pass(3600).await;
    world.pass(1).await;
    assert_eq!(world.instance(&person, &id).await["reason_code"], "balance_exhausted");
    let all = kinds(&world, &person).await;
    assert_eq!(all, ["balance.low_24h", "balance.low_24h", "balance.low_1h", "balance.exhausted"]);
    consistent(&world.api).await;
}

async fn m3_what_is_proven_after_the_end_is_owed_up_to_a_bound_and_paid_first(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.spender().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    // A hundred seconds whose proof stays away.
    world.api.clock.advance_seconds(100);
    let now = world.now();
    world.agents[0].set_now(now);
    let late = world.agents[0].next_report();
    world.api.clock.advance_seconds(100);
    let now = world.now();
    world.agents[0].set_now(now);
    let mut report = world.agents[0].next_report();
    report.usage = report.usage.split_off(report.usage.len() - 1);
    world.agents[0].send(&world.api, &report).await;
    for _ in 0..152 {
        world.pass(100).await;
    }
    let ended = world.instance(&person, &id).await;
    assert_eq!(
        (&ended["state"], &ended["reason_code"]),
        (&json!("stopped"), &json!("balance_exhausted")),
        "{ended}"
    );
    assert_eq!(world.charges(&person).await[0]["seconds"], 15_000);
    let wallet = world.wallet(&person).await;
    assert_eq!((&wallet["available"]["amount"], &wallet["owed"]["amount"]), (&json!("0.00"), &json!("0.00")));

    // The proof arrives, twice: 60 of the 100 seconds are owed, 40 are ours, for good.
    for _ in 0..2 {
        world.agents[0].send(&world.api, &late).await;
        world.pass(10).await;
    }
    let wallet = world.wallet(&person).await;
    assert_eq!(
        (&wallet["cash"]["amount"], &wallet["credit"]["amount"]),
        (&json!("0.00"), &json!("0.00")),
        "{wallet}"
    );
    assert_eq!(wallet["owed"]["amount"], "0.04", "60 s at 2.40 an hour: {wallet}");
    let charge = world.charges(&person).await[0].clone();
    assert_eq!(
        (&charge["seconds"], &charge["amount"]["amount"]),
        (&json!(15_060), &json!("10.04")),
        "{charge}"
    );
    assert_eq!(kinds(&world, &person).await.iter().filter(|kind| *kind == "debt.incurred").count(), 1);
    consistent(&world.api).await;

    // The next cash pays it first, and nothing more of that run is ever charged.
    world.api.post_once(&person.access, TOPUPS, "cash", yuan("50.00")).await.is(201);
    for _ in 0..3 {
        world.pass(100).await;
    }
    let wallet = world.wallet(&person).await;
    assert_eq!(
        (&wallet["cash"]["amount"], &wallet["owed"]["amount"]),
        (&json!("49.96"), &json!("0.00")),
        "{wallet}"
    );
    assert_eq!(world.charges(&person).await[0]["seconds"], 15_060);
    let ledger = world.api.get(&person.access, "/v1/ledger?limit=100").await.is(200);
    let of = |account: &str| -> Vec<Value> {
        let lines = ledger["items"].as_array().unwrap().iter().filter(|line| line["account"] == account);
        lines.map(|line| line["amount"]["amount"].clone()).collect()
    };
    assert_eq!(of("receivable"), [json!("0.04"), json!("-0.04")], "{ledger}");
    consistent(&world.api).await;
}

async fn b4_what_keeps_costing_while_stopped_is_told_once_a_day(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.spender().await;
    let order = json!({"offer_id": "card-24", "label": "kept", "disk_gb": 120});
    let id = world.try_create(&person, order).await.is(201)["id"].as_str().unwrap().parse().unwrap();
    world.pass(1).await;
    world.stop(&person, &id).await;
    world.pass(1).await;
    let told = async |world: &World| -> Vec<Value> {
        let all = notices(world, &person).await;
        all.into_iter().filter(|item| item["type"] == "stopped.still_costs").collect()
    };
    assert_eq!(told(&world).await.len(), 0, "the answer to the stop said so today");
    // It is eight in the morning.
    world.pass(17 * 3600).await;
    world.pass(3600).await;
    let first = told(&world).await;
    assert_eq!(first.len(), 1, "{first:?}");
    assert_eq!(first[0]["detail"]["per_hour"], "0.05", "100 GiB above what is included: {first:?}");
    assert_eq!(first[0]["detail"]["instances"][0]["label"], "kept");
    world.pass(24 * 3600).await;
    world.pass(3600).await;
    assert_eq!(told(&world).await.len(), 2);
    world.terminate(&person, &id).await;
    world.pass(24 * 3600).await;
    assert_eq!(told(&world).await.len(), 2, "nothing costs any more");
    consistent(&world.api).await;
}
