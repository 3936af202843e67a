//! Many at once for few cards, quotas, and answers when there is nothing left.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{join, join_all};
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::hardware::Wiring;
use super::world::World;
use crate::harness::{Api, Got, Person};

on_both! {
    s1_a_hundred_creates_for_two_pools_give_exactly_two;
    s1_two_hundred_creates_for_a_hundred_cards_give_exactly_a_hundred_in_every_round;
    s1_fifty_rounds_of_twenty_creates_for_ten_cards_give_exactly_ten_each_and_refuse_alike;
    s6_a_pool_of_four_weighs_four_cards_and_all_their_bytes;
    s9_no_capacity_names_reasons_and_alternatives;
    p3_the_stock_driver_sells_cards_and_no_pools;
}

/// Rounds of two hundred creates for a hundred cards, unless `TARN_CROWD_ROUNDS` says otherwise (`make chaos-crowd`: 50).
const ROUNDS: usize = 2;

#[expect(clippy::disallowed_methods, reason = "how long to try is the caller's to say")]
fn rounds() -> usize {
    std::env::var("TARN_CROWD_ROUNDS")
        .map_or(ROUNDS, |rounds| rounds.parse().expect("TARN_CROWD_ROUNDS is a number"))
}

/// A tenant that neither quota nor wallet keeps from starting.
async fn rich(world: &World) -> Person {
    let person = world.person().await;
    let operator = &world.operator.access;
    let quota = json!({"quota_cards": 1000, "quota_bytes": 1_u64 << 50});
    world.api.patch(operator, &format!("/v1/admin/tenants/{}", person.tenant_id), quota).await.is(200);
    let amount = json!({"amount": "100000.00", "currency": "CNY"});
    let credit = json!({"tenant_id": person.tenant_id, "kind": "promo", "amount": amount, "reason": "test"});
    world.api.post_once(operator, "/v1/admin/credits", &person.tenant_id, credit).await.is(201);
    person
}

/// `count` creates at the same moment, by several tenants.
async fn storm(world: &World, offer: &str, count: usize) -> Vec<Got> {
    let mut people = Vec::new();
    for _ in 0..4 {
        people.push(rich(world).await);
    }
    round(world, &people, offer, count, 0).await
}

/// The same by these tenants, in their `turn`-th round.
async fn round(world: &World, people: &[Person], offer: &str, count: usize, turn: usize) -> Vec<Got> {
    let creates = (0..count).map(|number| {
        let (api, person) = (&world.api, &people[number % people.len()]);
        async move {
            let key = format!("storm-{turn}-{number}");
            api.post_once(&person.access, "/v1/instances", &key, json!({"offer_id": offer})).await
        }
    });
    join_all(creates).await
}

fn cards_of(got: &[Got]) -> Vec<String> {
    let pools = got.iter().filter(|got| got.status == 201).map(|got| &got.body["pool"]);
    let cards = pools.flat_map(|pool| {
        let peers = pool["peer_gpus"].as_array().unwrap().iter().map(|peer| &peer["uuid"]);
        std::iter::once(&pool["primary_gpu"]).chain(peers).map(|uuid| uuid.as_str().unwrap().to_owned())
    });
    cards.collect()
}

fn exactly(got: &[Got], wanted: usize) {
    let made = got.iter().filter(|got| got.status == 201).count();
    assert_eq!(made, wanted, "{:?}", got.iter().find(|got| got.status != 201).map(|got| &got.body));
    for refused in got.iter().filter(|got| got.status != 201) {
        assert_eq!((refused.status, &refused.body["code"]), (409, &json!("no_capacity")), "{}", refused.body);
    }
    let cards = cards_of(got);
    assert_eq!(cards.iter().collect::<BTreeSet<_>>().len(), cards.len(), "a card was given twice");
}

async fn s1_a_hundred_creates_for_two_pools_give_exactly_two(api: Api) {
    let world = World::with_host(api, 8).await;
    let got = storm(&world, "pool-96", 100).await;
    exactly(&got, 2);
    assert_eq!(world.cards_held().await, 8);
}

async fn s1_two_hundred_creates_for_a_hundred_cards_give_exactly_a_hundred_in_every_round(api: Api) {
    rounds_of(api, (10, 200), rounds()).await;
}

/// The same at a tenth of the size, for as many rounds as the trial asks for.
async fn s1_fifty_rounds_of_twenty_creates_for_ten_cards_give_exactly_ten_each_and_refuse_alike(api: Api) {
    rounds_of(api, (1, 20), 50).await;
}

/// So many rounds of `creates` at once for the ten cards of each of `hosts`, all deleted after each.
async fn rounds_of(api: Api, (hosts, creates): (usize, usize), rounds: usize) {
    let mut world = World::on(api).await;
    for _ in 0..hosts {
        world.add_host(10, Wiring::Stock).await;
    }
    let capacity = hosts * 10;
    let mut people = Vec::new();
    for _ in 0..4 {
        people.push(rich(&world).await);
    }
    let mut refusals = BTreeSet::new();
    for turn in 0..rounds {
        let over = AtomicBool::new(false);
        let (got, most) = join(
            async {
                let got = round(&world, &people, "card-24", creates, turn).await;
                over.store(true, Ordering::Relaxed);
                got
            },
            most_held(&world, &over),
        )
        .await;
        exactly(&got, capacity);
        assert!(most <= capacity as u64, "round {turn}: {most} cards were held at once");
        assert_eq!(world.cards_held().await, capacity as u64, "round {turn}");
        let refused = got.iter().filter(|got| got.status != 201);
        refusals
            .extend(refused.map(|got| json!([got.body["reasons"], got.body["alternatives"]]).to_string()));
        let made = got.iter().enumerate().filter(|(_, got)| got.status == 201);
        let deletes = made.map(|(number, got)| {
            let (api, person) = (&world.api, &people[number % people.len()]);
            async move {
                let path = format!("/v1/instances/{}", got.body["id"].as_str().unwrap());
                api.delete(&person.access, &path).await
            }
        });
        for deleted in join_all(deletes).await {
            assert!(deleted.status < 300, "{} {}", deleted.status, deleted.body);
        }
        world.round().await;
        assert_eq!(world.cards_held().await, 0, "round {turn}");
    }
    // Whoever comes too late hears the same, in whichever round and order.
    let alike = json!([{"in_use": hosts}, []]).to_string();
    assert_eq!(refusals, BTreeSet::from([alike]));
}

/// The most cards that were held at any look, until it is over.
async fn most_held(world: &World, over: &AtomicBool) -> u64 {
    let mut most = 0;
    while !over.load(Ordering::Relaxed) {
        most = most.max(world.cards_held().await);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    most
}

async fn s6_a_pool_of_four_weighs_four_cards_and_all_their_bytes(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let path = format!("/v1/admin/tenants/{}", person.tenant_id);
    for (cards, bytes) in [(3_u64, 1_u64 << 40), (4, 96 << 30), (7, 1 << 40)] {
        let quota = json!({"quota_cards": cards, "quota_bytes": bytes});
        world.api.patch(&world.operator.access, &path, quota).await.is(200);
        let got = world.try_create(&person, json!({"offer_id": "pool-96"})).await;
        if (cards, bytes) == (4, 96 << 30) {
            let made = got.is(201);
            assert_eq!(made["price"]["metered_cards"], 1, "{made}");
            let mut given = cards_of(&[Got { status: 201, headers: HeaderMap::new(), body: made }]);
            given.dedup();
            assert_eq!(given.len(), 4);
            continue;
        }
        let refused = got.fails(403, "quota_exceeded");
        // Seven cards are enough, and four are taken: cards run out in both.
        assert_eq!(refused["quota"]["exceeded"], "cards", "{refused}");
        let charge = &refused["quota"]["charge"];
        assert_eq!((&charge["cards"], &charge["metered_cards"]), (&json!(4), &json!(1)), "{refused}");
        assert_eq!(charge["memory_bytes"], 4_u64 * (24 << 30), "{refused}");
    }
}

async fn s9_no_capacity_names_reasons_and_alternatives(api: Api) {
    let mut world = World::with_host(api, 4).await;
    let (first, second) = (world.person().await, world.person().await);
    let seen = world.api.get(&second.access, "/v1/offers/pool-96").await.is(200);
    assert_eq!(seen["availability"]["count"], 1);
    world.create(&first, "card-24").await;

    let refused = world.try_create(&second, json!({"offer_id": "pool-96"})).await.fails(409, "no_capacity");
    assert_eq!(refused["reasons"], json!({"in_use": 1}), "{refused}");
    let offers: Vec<&Value> =
        refused["alternatives"].as_array().unwrap().iter().map(|one| &one["offer_id"]).collect();
    assert_eq!(offers, ["card-24", "pool-48"], "{refused}");

    let dry = world.api.post(&second.access, "/v1/offers/pool-96/dry-run", json!({})).await.is(200);
    assert_eq!((&dry["placeable"], &dry["affordable"]), (&json!(false), &json!(true)), "{dry}");
    let gone = world.api.get(&second.access, "/v1/offers/pool-96").await.is(200);
    assert_eq!(
        (&gone["availability"]["count"], &gone["pool_size_bytes"]),
        (&json!(0), &Value::Null),
        "{gone}"
    );
}

async fn p3_the_stock_driver_sells_cards_and_no_pools(api: Api) {
    let mut world = World::on(api).await;
    world.add_host(8, Wiring::Stock).await;
    let person = world.person().await;
    let search = json!({"where": {"availability.count": {"gt": 0}}, "order": ["price.per_hour.amount"]});
    let found = world.api.post(&person.access, "/v1/offers/search", search).await.is(200);
    assert_eq!(found["items"].as_array().unwrap().len(), 1, "{found}");
    assert_eq!(
        (&found["items"][0]["id"], &found["items"][0]["availability"]["count"]),
        (&json!("card-24"), &json!(8))
    );
    let pool = world.api.get(&person.access, "/v1/offers/pool-96").await.is(200);
    let reasons = json!({"links_not_certified": 1});
    assert_eq!(
        (&pool["availability"]["count"], &pool["availability"]["reasons"]),
        (&json!(0), &reasons),
        "{pool}"
    );
    assert_eq!((&pool["links"], &pool["pool_size_bytes"]), (&Value::Null, &Value::Null));
    for offer in ["pool-48", "pool-96"] {
        let refused = world.try_create(&person, json!({"offer_id": offer})).await.fails(409, "no_capacity");
        assert_eq!(refused["reasons"], reasons, "{refused}");
        assert_eq!(refused["alternatives"][0]["offer_id"], "card-24", "{refused}");
    }
    assert_eq!(world.cards_held().await, 0);
    world.create(&person, "card-24").await;
    world.pass(1).await;
    assert_eq!(world.cards_held().await, 1);
}
