//! A price edit: seen before it is written, and refused on a picture that has changed.

use serde_json::{Value, json};
use tarn_api::http::instant::Instant;

use super::world::World;
use crate::harness::{Api, Person};

on_both! {
    what_the_preview_says_is_what_happens;
    nobody_edits_on_a_stale_picture;
    a_price_never_takes_effect_in_the_past;
}

const PREVIEW: &str = "/v1/admin/price-book/preview";

fn cny(amount: &str) -> Value {
    json!({"amount": amount, "currency": "CNY"})
}

fn at(value: &Value) -> Instant {
    serde_json::from_value(value.clone()).unwrap()
}

/// Someone with a pool that runs and money for this many hours of it.
async fn renting(world: &mut World, hours: i64) -> Person {
    let person = world.person().await;
    // 10.00 is there from the start; a pool is 2.40.
    let amount = tarn_billing::money::Micros::new(hours * 2_400_000 - 10_000_000);
    let credit = json!({
        "tenant_id": person.tenant_id, "kind": "promo", "reason": "a test",
        "amount": {"amount": amount, "currency": "CNY"},
    });
    world.api.post_once(&world.operator.access, "/v1/admin/credits", &person.tenant_id, credit).await.is(201);
    world.create(&person, "pool-96").await;
    person
}

async fn what_the_preview_says_is_what_happens(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let operator = world.operator.clone();
    let rich = renting(&mut world, 100).await;
    let poorer = renting(&mut world, 30).await;
    world.pass(1).await;
    world.pass(100).await;
    let from = Instant(world.now().plus_seconds(600));
    let price = json!({"offer_id": "pool-96", "price_per_hour": cny("3.60"), "effective_from": from});
    let before = world.api.get(&operator.access, "/v1/admin/price-book").await.is(200);

    let preview = world.api.post(&operator.access, PREVIEW, price.clone()).await.is(200);
    let figures =
        ["tenants", "instances", "tenants_below_24_hours", "version"].map(|field| preview[field].clone());
    assert_eq!(figures, [json!(2), json!(2), json!(1), json!(2)], "{preview}");
    assert_eq!((&preview["price_per_hour_before"], &preview["price_per_hour"]), (&cny("2.40"), &cny("3.60")));
    for (person, short) in [(&rich, false), (&poorer, true)] {
        let items = preview["items"].as_array().unwrap();
        let item = items.iter().find(|item| item["tenant_id"] == *person.tenant_id).unwrap();
        assert_eq!(item["falls_below_24_hours"], short, "{item}");
        assert_eq!(
            (&item["burn_per_hour_before"], &item["burn_per_hour_after"]),
            (&cny("2.40"), &cny("3.60"))
        );
        assert_eq!(at(&item["instances"][0]["splits_at"]), from);
    }
    // One tenant a page, under the same fingerprint.
    let first = world.api.post(&operator.access, &format!("{PREVIEW}?limit=1"), price.clone()).await.is(200);
    let cursor = first["next_cursor"].as_str().unwrap();
    let path = format!("{PREVIEW}?limit=1&cursor={cursor}");
    let second = world.api.post(&operator.access, &path, price.clone()).await.is(200);
    assert_eq!(
        (&first["fingerprint"], &second["fingerprint"]),
        (&preview["fingerprint"], &preview["fingerprint"])
    );
    let ids = |page: &Value| {
        page["items"].as_array().unwrap().iter().map(|item| item["tenant_id"].clone()).collect()
    };
    let (mut paged, all): (Vec<Value>, Vec<Value>) = (ids(&first), ids(&preview));
    paged.extend::<Vec<Value>>(ids(&second));
    assert_eq!(paged, all);
    assert_eq!(
        world.api.get(&operator.access, "/v1/admin/price-book").await.is(200),
        before,
        "nothing was written"
    );

    let mut edit = price;
    edit["fingerprint"] = preview["fingerprint"].clone();
    world.api.post(&operator.access, "/v1/admin/price-book", edit.clone()).await.is(201);
    world.api.post(&operator.access, "/v1/admin/price-book", edit).await.fails(422, "invalid_request");
    let item =
        preview["items"].as_array().unwrap().iter().find(|item| item["tenant_id"] == *poorer.tenant_id);
    let promised = at(&item.unwrap()["exhausts_at_after"]);
    world.pass(100).await;
    let told = at(&world.wallet(&poorer).await["exhausts_at"]);
    assert!(told.0.micros_since(promised.0).abs() <= 1_000_000, "{told:?} and {promised:?}");
    world.pass(600).await;
    let charges = world.charges(&poorer).await;
    assert_eq!(charges.len(), 2, "{charges:?}");
    assert_eq!((&charges[1]["rate_per_hour"], &charges[0]["rate_per_hour"]), (&cny("2.40"), &cny("3.60")));
    assert_eq!((at(&charges[1]["ended_at"]), at(&charges[0]["started_at"])), (from, from));
    world.audit().await;
}

async fn nobody_edits_on_a_stale_picture(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let operator = world.operator.clone();
    renting(&mut world, 100).await;
    world.pass(1).await;
    let price = json!({"offer_id": "pool-96", "price_per_hour": cny("3.60")});
    let preview = world.api.post(&operator.access, PREVIEW, price.clone()).await.is(200);
    let edit = |price: &Value| {
        let mut edit = price.clone();
        edit["fingerprint"] = preview["fingerprint"].clone();
        edit
    };
    let other = json!({"offer_id": "pool-96", "price_per_hour": cny("3.61")});
    let (post, path) = (&world.api, "/v1/admin/price-book");
    post.post(&operator.access, path, edit(&other)).await.fails(409, "changed_meanwhile");
    let mut scheduled = edit(&price);
    scheduled["effective_from"] = json!(Instant(world.now().plus_seconds(60)));
    post.post(&operator.access, path, scheduled).await.fails(409, "changed_meanwhile");
    post.post(&operator.access, path, price.clone()).await.fails(422, "invalid_request");
    // Time alone is no change; another instance is.
    world.pass(30).await;
    let again = world.api.post(&operator.access, PREVIEW, price.clone()).await.is(200);
    assert_eq!(again["fingerprint"], preview["fingerprint"]);
    let person = renting(&mut world, 100).await;
    world.pass(1).await;
    world.api.post(&operator.access, path, edit(&price)).await.fails(409, "changed_meanwhile");
    // As is another price.
    let fresh = world.api.post(&operator.access, PREVIEW, price.clone()).await.is(200);
    world.api.change_price(&operator, other).await.is(201);
    let mut late = price.clone();
    late["fingerprint"] = fresh["fingerprint"].clone();
    world.api.post(&operator.access, path, late).await.fails(409, "changed_meanwhile");
    world.pass(10).await;
    let mut rates: Vec<_> =
        world.charges(&person).await.iter().map(|line| line["rate_per_hour"]["amount"].clone()).collect();
    rates.sort_by_key(Value::to_string);
    assert_eq!(rates, ["2.40", "3.61"], "only the edit that was seen");
}

async fn a_price_never_takes_effect_in_the_past(api: Api) {
    let world = World::with_host(api, 4).await;
    let operator = &world.operator;
    for seconds in [1, 3600] {
        let from = Instant(world.now().plus_seconds(-seconds));
        let price = json!({"offer_id": "pool-96", "price_per_hour": cny("3.60"), "effective_from": from});
        let refused =
            world.api.post(&operator.access, PREVIEW, price.clone()).await.fails(422, "invalid_request");
        assert_eq!(refused["errors"][0]["pointer"], "/effective_from");
        let mut edit = price;
        edit["fingerprint"] = json!("00");
        let refused = world
            .api
            .post(&operator.access, "/v1/admin/price-book", edit)
            .await
            .fails(422, "invalid_request");
        assert_eq!(refused["errors"][0]["pointer"], "/effective_from");
    }
    let nothing = json!({"offer_id": "pool-1", "price_per_hour": cny("3.60")});
    world.api.post(&operator.access, PREVIEW, nothing).await.fails(404, "not_found");
    let price = json!({"offer_id": "pool-96", "price_per_hour": cny("-0.01")});
    let refused = world.api.post(&operator.access, PREVIEW, price).await.fails(422, "invalid_request");
    assert_eq!(refused["errors"][0]["pointer"], "/price_per_hour/amount");
}
