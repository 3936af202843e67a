//! Spend caps: reached at the computed second, by whatever runs under them, whether or not the control plane is there.

use serde_json::{Value, json};
use tarn_protocol::ids::InstanceId;

use super::till::consistent;
use crate::fleet::world::World;
use crate::harness::{Api, Person};

on_both! {
    a_cap_stops_at_its_second_and_the_next_day_begins_afresh;
    a_host_stops_at_a_cap_by_itself_and_the_reason_is_the_cap;
    a_cap_reached_before_midnight_is_the_reason_after_it;
    a_host_that_stops_by_itself_is_told_of_once;
    starts_that_race_do_not_rely_on_the_same_room_under_a_cap;
    a_cap_of_a_label_or_a_key_stops_its_own_alone;
    a_raised_cap_and_a_lifted_one_let_run_on;
    a_label_moves_a_run_under_a_cap_or_out_of_it_from_now_on;
}

const CAPS: &str = "/v1/wallet/spend-caps";

fn day(amount: &str) -> Value {
    json!({"period": "day", "limit": {"amount": amount, "currency": "CNY"}})
}

async fn notices(world: &World, access: &str) -> Vec<String> {
    let page = world.api.get(access, "/v1/notices?limit=100").await.is(200);
    page["items"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap().to_owned()).collect()
}

async fn a_cap_stops_at_its_second_and_the_next_day_begins_afresh(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.spender().await;
    world.api.put(&person.access, CAPS, day("2.39")).await.is(200);
    let refused = world.try_create(&person, json!({"offer_id": "pool-96"})).await;
    let refused = refused.fails(402, "spend_cap_reached");
    assert!(refused["detail"].as_str().unwrap().contains("2.39"), "an hour costs 2.40: {refused}");
    let cap = world.api.put(&person.access, CAPS, day("2.40")).await.is(200);
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    world.pass(1).await;
    let wallet = world.wallet(&person).await;
    let listed = world.api.get(&person.access, CAPS).await.is(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 1, "set twice, one cap");
    assert_eq!(
        (&listed["items"][0]["id"], &listed["items"][0]["limit"]["amount"]),
        (&cap["id"], &json!("2.40"))
    );
    let second = |at: &Value| at.as_str().unwrap()[..19].to_owned();
    assert_eq!(
        second(&wallet["exhausts_at"]),
        second(&listed["items"][0]["reached_at"]),
        "an hour from now, not four"
    );
    for _ in 0..35 {
        world.pass(100).await;
    }
    assert_eq!(world.state(&person, &id).await, "running");
    world.pass(100).await;
    world.pass(1).await;
    let ended = world.instance(&person, &id).await;
    assert_eq!(
        (&ended["state"], &ended["reason_code"]),
        (&json!("stopped"), &json!("spend_cap_reached")),
        "{ended}"
    );
    let charge = world.charges(&person).await[0].clone();
    assert_eq!(
        (&charge["seconds"], &charge["amount"]["amount"]),
        (&json!(3_600), &json!("2.40")),
        "{charge}"
    );
    assert_eq!(charge["close_reason"], "spend_cap");
    assert_eq!(world.wallet(&person).await["available"]["amount"], "7.60");
    assert_eq!(
        notices(&world, &person.access).await.iter().filter(|kind| *kind == "spend_cap.reached").count(),
        1
    );
    let start = format!("/v1/instances/{id}/actions/start");
    world.api.post_once(&person.access, &start, "a", json!({})).await.fails(402, "spend_cap_reached");
    // It was about nine in the morning; the next day begins afresh.
    world.pass(15 * 3600).await;
    world.api.post_once(&person.access, &start, "b", json!({})).await.is(202);
    world.pass(1).await;
    assert_eq!(world.state(&person, &id).await, "running");
    consistent(&world.api).await;
}

async fn a_host_stops_at_a_cap_by_itself_and_the_reason_is_the_cap(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.spender().await;
    world.api.put(&person.access, CAPS, day("2.40")).await.is(200);
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    world.pass(1).await;
    world.api.clock.advance_seconds(6 * 3600);
    ended_by_its_host_at_the_cap(&mut world, &person, &id).await;
}

/// The host stopped it an hour after its start, told so now, and that is what the customer reads.
async fn ended_by_its_host_at_the_cap(world: &mut World, person: &Person, id: &InstanceId) {
    let now = world.now();
    world.agents[0].set_now(now);
    let report = world.agents[0].next_report();
    assert!(!world.agents[0].runs(id), "the agent stopped by itself");
    world.agents[0].send(&world.api, &report).await;
    world.tick().await;
    world.round().await;
    let ended = world.instance(person, id).await;
    assert_eq!(
        (&ended["state"], &ended["reason_code"]),
        (&json!("stopped"), &json!("spend_cap_reached")),
        "{ended}"
    );
    let charge = world.charges(person).await[0].clone();
    assert_eq!(
        (&charge["seconds"], &charge["close_reason"]),
        (&json!(3_600), &json!("spend_cap")),
        "{charge}"
    );
}

async fn a_cap_of_a_label_or_a_key_stops_its_own_alone(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let (person, key) = world.spender_and_key().await;
    let mut batch = day("2.40");
    batch["label"] = json!("batch");
    world.api.put(&person.access, CAPS, batch).await.is(200);
    let labelled = json!({"offer_id": "pool-96", "label": "batch"});
    let batch =
        world.try_create(&person, labelled.clone()).await.is(201)["id"].as_str().unwrap().parse().unwrap();
    let web =
        world.try_create(&person, json!({"offer_id": "pool-96", "label": "web"})).await.is(201)["id"].clone();
    let web = web.as_str().unwrap().parse().unwrap();
    world.pass(1).await;
    for _ in 0..37 {
        world.pass(100).await;
    }
    assert_eq!(world.instance(&person, &batch).await["reason_code"], "spend_cap_reached");
    assert_eq!(world.state(&person, &web).await, "running");
    world.try_create(&person, labelled).await.fails(402, "spend_cap_reached");

    // A key's cap: what other credentials start is free of it.
    let mut of_key = day("2.40");
    of_key["api_key_id"] = json!(key);
    let set = world.api.put(&person.access, CAPS, of_key.clone()).await.is(200);
    assert_eq!(set["api_key_id"], key);
    assert!(set["reached_at"].as_str() <= set["period_ends_at"].as_str(), "{set}");
    world.pass(1).await;
    world.pass(1).await;
    assert_eq!(
        world.instance(&person, &web).await["reason_code"],
        "spend_cap_reached",
        "both were made by this key"
    );
    let mut foreign = of_key;
    foreign["api_key_id"] = json!("key_01jf3z6v5w9x8y7z6a5b4c3d2e");
    world.api.put(&person.access, CAPS, foreign).await.fails(404, "not_found");
    consistent(&world.api).await;
}

async fn a_raised_cap_and_a_lifted_one_let_run_on(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.spender().await;
    let cap = world.api.put(&person.access, CAPS, day("2.40")).await.is(200);
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    for _ in 0..30 {
        world.pass(100).await;
    }
    world.api.put(&person.access, CAPS, day("4.80")).await.is(200);
    for _ in 0..30 {
        world.pass(100).await;
    }
    assert_eq!(world.state(&person, &id).await, "running", "6,000 s of 7,200");
    let path = format!("{CAPS}/{}", cap["id"].as_str().unwrap());
    assert_eq!(world.api.delete(&person.access, &path).await.status, 204);
    world.api.delete(&person.access, &path).await.fails(404, "not_found");
    for _ in 0..20 {
        world.pass(100).await;
    }
    assert_eq!(world.state(&person, &id).await, "running", "8,000 s, paid and without a cap");
    // A cap below what is spent already ends it at once, and what was proven stays charged.
    world.api.put(&person.access, CAPS, day("1.00")).await.is(200);
    world.pass(1).await;
    world.pass(1).await;
    assert_eq!(world.instance(&person, &id).await["reason_code"], "spend_cap_reached");
    consistent(&world.api).await;
}

/// The control plane is away from before the cap is reached until the next day has begun.
async fn a_cap_reached_before_midnight_is_the_reason_after_it(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let (person, _) = world.spender_and_key().await;
    let listed = world.api.put(&person.access, CAPS, day("2.40")).await.is(200);
    let midnight: jiff::Timestamp = listed["period_ends_at"].as_str().unwrap().parse().unwrap();
    let left = midnight.as_second() - world.now().as_micros() / 1_000_000;
    world.pass(left - 5_400).await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    world.pass(1).await;
    world.api.clock.advance_seconds(6_300);
    ended_by_its_host_at_the_cap(&mut world, &person, &id).await;
    let told = notices(&world, &person.access).await;
    assert!(told.iter().any(|kind| kind == "spend_cap.reached"), "{told:?}");
    assert!(!told.iter().any(|kind| kind == "balance.exhausted"), "{told:?}");
    // The new day is fresh.
    let start = format!("/v1/instances/{id}/actions/start");
    world.api.post_once(&person.access, &start, "b", json!({})).await.is(202);
    consistent(&world.api).await;
}

async fn starts_that_race_do_not_rely_on_the_same_room_under_a_cap(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.spender().await;
    world.api.put(&person.access, CAPS, day("2.40")).await.is(200);
    let first = world.create(&person, "pool-96").await;
    let second = world.try_create(&person, json!({"offer_id": "pool-96"})).await;
    second.fails(402, "spend_cap_reached");
    // One that never comes to run leaves its room to the next.
    world.terminate(&person, &first).await;
    world.create(&person, "pool-96").await;
}

async fn a_host_that_stops_by_itself_is_told_of_once(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let (person, _) = world.spender_and_key().await;
    world.create(&person, "card-24").await;
    world.create(&person, "card-24").await;
    world.pass(1).await;
    world.pass(1).await;
    world.api.clock.advance_seconds(12 * 3600);
    let now = world.now();
    world.agents[0].set_now(now);
    let report = world.agents[0].next_report();
    world.agents[0].send(&world.api, &report).await;
    world.tick().await;
    world.round().await;
    world.pass(60).await;
    let told = notices(&world, &person.access).await;
    assert_eq!(told.iter().filter(|kind| *kind == "balance.exhausted").count(), 1, "{told:?}");
    consistent(&world.api).await;
}

async fn a_label_moves_a_run_under_a_cap_or_out_of_it_from_now_on(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let (person, _) = world.spender_and_key().await;
    for (label, limit) in [("nothing", "0.00"), ("batch", "2.40")] {
        let mut cap = day(limit);
        cap["label"] = json!(label);
        world.api.put(&person.access, CAPS, cap).await.is(200);
    }
    let labelled = json!({"offer_id": "pool-96", "label": "batch"});
    let made = world.try_create(&person, labelled).await.is(201);
    let (id, path) = (
        made["id"].as_str().unwrap().parse().unwrap(),
        format!("/v1/instances/{}", made["id"].as_str().unwrap()),
    );
    world.pass(1).await;
    world.pass(1).await;
    // Out of its cap: the host knows before any worker has come by.
    world.api.patch(&person.access, &path, json!({"label": "web"})).await.is(200);
    world.api.clock.advance_seconds(2 * 3600);
    let now = world.now();
    world.agents[0].step(&world.api, now).await;
    assert!(world.agents[0].runs(&id), "its old cap would have ended it after an hour");
    // Under one that has no room: ended now, and what it ran before is charged.
    world.api.patch(&person.access, &path, json!({"label": "nothing"})).await.is(200);
    world.pass(1).await;
    world.pass(1).await;
    assert_eq!(world.instance(&person, &id).await["reason_code"], "spend_cap_reached");
    let charge = world.charges(&person).await[0].clone();
    assert!(charge["seconds"].as_u64().unwrap() >= 7_200, "{charge}");
    consistent(&world.api).await;
}
