//! Whole lives of instances.

use serde_json::json;

use super::world::World;
use crate::harness::Api;

on_both! {
    a_pool_is_rented_run_stopped_and_billed_on_its_primary_alone;
}

async fn a_pool_is_rented_run_stopped_and_billed_on_its_primary_alone(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.api.person().await;

    let offers = world.api.get(&person.access, "/v1/offers").await.is(200);
    let pool =
        offers["items"].as_array().unwrap().iter().find(|offer| offer["id"] == "pool-96").unwrap().clone();
    assert_eq!(pool["availability"]["count"], 2, "{pool}");
    assert_eq!((&pool["cards"], &pool["metered_cards"]), (&json!(4), &json!(1)));
    assert_eq!(pool["price"]["per_hour"], json!({"amount": "2.40", "currency": "CNY"}));

    let id = world.create(&person, "pool-96").await;
    assert_eq!(world.state(&person, &id).await, "requested");
    world.pass(1).await;
    let running = world.instance(&person, &id).await;
    assert_eq!(running["state"], "running", "{running}");
    assert_eq!(running["pool"]["peer_gpus"].as_array().unwrap().len(), 3);
    assert_eq!(world.cards_held().await, 4);

    for _ in 0..10 {
        world.pass(10).await;
    }
    let stopping = world.stop(&person, &id).await;
    assert_eq!((stopping["state"].as_str(), stopping["billable"].as_bool()), (Some("stopping"), Some(false)));
    world.pass(1).await;
    assert_eq!(world.state(&person, &id).await, "stopped");
    assert_eq!(world.cards_held().await, 0);

    let charges = world.charges(&person).await;
    assert_eq!(charges.len(), 1, "{charges:?}");
    assert_eq!(charges[0]["seconds"], 100, "{charges:?}");
    // floor(2,400,000 x 100 / 3600) micros.
    assert_eq!(charges[0]["amount"]["amount"], "0.066666");
}
