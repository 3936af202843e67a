//! Money that ends, in virtual time.

use serde_json::json;

use super::world::World;
use crate::harness::Api;

on_both! {
    m19_ten_cny_at_2_40_an_hour_end_at_fifteen_thousand_seconds;
    a_start_needs_an_hour_of_everything_that_runs;
    m20_a_host_stops_by_itself_when_the_control_plane_is_away;
}

async fn m19_ten_cny_at_2_40_an_hour_end_at_fifteen_thousand_seconds(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    for _ in 0..149 {
        world.pass(100).await;
    }
    assert_eq!(world.state(&person, &id).await, "running", "14,900 s are paid");
    world.pass(99).await;
    assert_eq!(world.state(&person, &id).await, "running", "14,999 s are paid");
    world.pass(1).await;
    world.pass(1).await;
    let ended = world.instance(&person, &id).await;
    assert_eq!(
        (&ended["state"], &ended["reason_code"]),
        (&json!("stopped"), &json!("balance_exhausted")),
        "{ended}"
    );
    let charges = world.charges(&person).await;
    assert_eq!((charges.len(), &charges[0]["seconds"]), (1, &json!(15_000)), "{charges:?}");
    assert_eq!(charges[0]["amount"]["amount"], "10.00");
    let wallet = world.wallet(&person).await;
    assert_eq!(
        (&wallet["credit"]["amount"], &wallet["available"]["amount"]),
        (&json!("0.00"), &json!("0.00")),
        "{wallet}"
    );
    world.audit().await;
    let refused = world.try_create(&person, json!({"offer_id": "card-24"})).await;
    refused.fails(402, "balance_too_low");
}

async fn a_start_needs_an_hour_of_everything_that_runs(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let quota = json!({"quota_cards": 100, "quota_bytes": 1_u64 << 50});
    let path = format!("/v1/admin/tenants/{}", person.tenant_id);
    world.api.patch(&world.operator.access, &path, quota).await.is(200);
    // 10.00 covers 2.40 x 4 and no fifth hour; the first two are pools that run, the others would have no cards anyway.
    let first = world.create(&person, "pool-96").await;
    world.pass(1).await;
    let wallet = world.wallet(&person).await;
    assert_eq!(wallet["held"]["amount"], "0.00", "a running instance is paid by its segment: {wallet}");
    let second = world.create(&person, "pool-96").await;
    assert_eq!(world.wallet(&person).await["held"]["amount"], "2.40");
    world.pass(1).await;
    assert_eq!(world.state(&person, &second).await, "running");
    // 5,399 s of two pools leave less than an hour of both.
    for _ in 0..27 {
        world.pass(100).await;
    }
    for _ in 0..27 {
        world.pass(100).await;
    }
    world.stop(&person, &first).await;
    world.pass(1).await;
    let path = format!("/v1/instances/{first}/actions/start");
    world.api.post_once(&person.access, &path, "again", json!({})).await.fails(402, "balance_too_low");
}

async fn m20_a_host_stops_by_itself_when_the_control_plane_is_away(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    world.pass(1).await;
    // Nothing ticks and nothing answers for six hours; the agent knows until when it is paid.
    world.api.clock.advance_seconds(6 * 3600);
    let now = world.now();
    world.agents[0].set_now(now);
    let report = world.agents[0].next_report();
    assert!(!world.agents[0].runs(&id), "the agent stopped what was not paid");
    world.agents[0].send(&world.api, &report).await;
    world.tick().await;
    world.round().await;
    assert_eq!(world.state(&person, &id).await, "stopped");
    let charges = world.charges(&person).await;
    assert_eq!((charges.len(), &charges[0]["seconds"]), (1, &json!(15_000)), "{charges:?}");
    assert_eq!(world.wallet(&person).await["credit"]["amount"], "0.00");
}
