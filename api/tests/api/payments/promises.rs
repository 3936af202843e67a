//! Service credits: found in the record, credited once, with what proves them.

use serde_json::{Value, json};
use tarn_protocol::control::{FailReason, Phase};

use super::till::consistent;
use crate::fleet::world::World;
use crate::harness::{Api, Person};

on_both! {
    a_silent_host_is_credited_once_by_its_length;
    a_degraded_run_is_credited_for_its_bad_time;
    a_run_that_we_lost_is_credited_what_it_had_cost;
    a_tenants_own_fault_is_credited_nothing;
    no_second_is_credited_twice_when_a_run_that_was_silent_is_lost;
}

async fn credits(world: &World, person: &Person) -> Vec<Value> {
    let page = world.api.get(&person.access, "/v1/sla-credits").await.is(200);
    page["items"].as_array().unwrap().clone()
}

async fn a_silent_host_is_credited_once_by_its_length(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let (person, other) = (world.spender().await, world.spender().await);
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    world.api.clock.advance_seconds(20);
    world.tick().await;
    world.api.clock.advance_seconds(200);
    world.round().await;
    world.round().await;
    assert_eq!(credits(&world, &person).await, [] as [Value; 0], "too short to be worth anything");
    world.api.clock.advance_seconds(20);
    world.tick().await;
    world.api.clock.advance_seconds(3_600);
    for _ in 0..3 {
        world.round().await;
    }
    let all = credits(&world, &person).await;
    assert_eq!(all.len(), 1, "{all:?}");
    let one = &all[0];
    assert_eq!((&one["kind"], &one["share_percent"]), (&json!("unreachable"), &json!(30)), "{one}");
    assert_eq!(one["amount"]["amount"], "0.72", "30 % of an hour at 2.40");
    assert_eq!((&one["instance_id"], &one["host_id"]), (&json!(id), &json!(world.agents[0].host_id)));
    let segment = &one["evidence"]["segments"][0];
    assert!(segment["boot_id"].is_string() && segment["proven_ms"].is_u64(), "{one}");
    assert!(one["evidence"]["alert_id"].as_str().unwrap().starts_with("evt_"), "{one}");
    let path = format!("/v1/sla-credits/{}", one["id"].as_str().unwrap());
    assert_eq!(&world.api.get(&person.access, &path).await.is(200), one);
    world.api.get(&other.access, &path).await.fails(404, "not_found");
    assert_eq!(credits(&world, &other).await, [] as [Value; 0]);
    let ledger = world.api.get(&person.access, "/v1/ledger?limit=100").await.is(200);
    let lines: Vec<&Value> =
        ledger["items"].as_array().unwrap().iter().filter(|line| line["kind"] == "sla_credit").collect();
    assert_eq!((lines.len(), &lines[0]["grant_id"]), (1, &one["grant_id"]), "{ledger}");
    consistent(&world.api).await;
}

async fn a_degraded_run_is_credited_for_its_bad_time(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.spender().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    let ready_mono_ms = world.agents[0].mono(world.now());
    world.agents[0].set_phase(&id, Phase::Degraded { ready_mono_ms, reason: "peer_lost".into() });
    world.pass(1).await;
    assert_eq!(world.state(&person, &id).await, "degraded");
    let cost = world.wallet(&person).await["available"].clone();
    world.pass(4 * 3600).await;
    assert_eq!(credits(&world, &person).await, [] as [Value; 0], "not over yet");
    world.agents[0].set_phase(&id, Phase::Running { ready_mono_ms });
    world.pass(1).await;
    world.pass(1).await;
    let all = credits(&world, &person).await;
    assert_eq!(all.len(), 1, "{all:?}");
    let one = &all[0];
    assert_eq!((&one["kind"], &one["share_percent"]), (&json!("degraded"), &json!(100)), "{one}");
    assert_eq!(
        (&one["evidence"]["reason"], &one["evidence"]["ended_by"]),
        (&json!("peer_lost"), &json!("instance.running"))
    );
    assert!(
        one["amount"]["amount"].as_str().unwrap().starts_with("9.6"),
        "four hours at 2.40: {one}, {cost}"
    );
    world.pass(60).await;
    assert_eq!(credits(&world, &person).await.len(), 1);
    consistent(&world.api).await;
}

async fn a_run_that_we_lost_is_credited_what_it_had_cost(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.spender().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    for _ in 0..36 {
        world.pass(100).await;
    }
    let failed =
        Phase::Failed { reason: FailReason::GpuFault, detail: "fell off the bus".into(), exit_code: None };
    world.agents[0].set_phase(&id, failed);
    world.pass(1).await;
    assert_eq!(world.state(&person, &id).await, "failed");
    world.pass(299).await;
    assert_eq!(credits(&world, &person).await, [] as [Value; 0], "evidence may still come");
    world.pass(10).await;
    let all = credits(&world, &person).await;
    let charge = world.charges(&person).await[0].clone();
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!((&all[0]["kind"], &all[0]["amount"]), (&json!("host_fault"), &charge["amount"]), "{all:?}");
    assert_eq!(world.wallet(&person).await["available"]["amount"], "10.00", "as if it had never run");
    world.pass(1_000).await;
    assert_eq!(credits(&world, &person).await.len(), 1);
    let told = world.api.get(&person.access, "/v1/notices").await.is(200);
    assert!(told["items"].as_array().unwrap().iter().any(|item| item["type"] == "sla.credit"), "{told}");
    consistent(&world.api).await;
}

async fn no_second_is_credited_twice_when_a_run_that_was_silent_is_lost(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.spender().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    world.api.clock.advance_seconds(20);
    world.tick().await;
    world.api.clock.advance_seconds(3_600);
    for _ in 0..3 {
        world.round().await;
    }
    let silent = credits(&world, &person).await;
    assert_eq!((silent.len(), &silent[0]["amount"]["amount"]), (1, &json!("0.72")), "{silent:?}");
    let failed =
        Phase::Failed { reason: FailReason::GpuFault, detail: "fell off the bus".into(), exit_code: None };
    world.agents[0].set_phase(&id, failed);
    world.pass(1).await;
    world.pass(310).await;
    let all = credits(&world, &person).await;
    assert_eq!(all.len(), 2, "{all:?}");
    let lost = all.iter().find(|one| one["kind"] == "host_fault").unwrap();
    assert_eq!(lost["evidence"]["credited_before"], json!("0.72"), "{lost}");
    assert_eq!(world.wallet(&person).await["available"]["amount"], "10.00", "what the run had cost, once");
    consistent(&world.api).await;
}

async fn a_tenants_own_fault_is_credited_nothing(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.spender().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    world.pass(1_000).await;
    let failed =
        Phase::Failed { reason: FailReason::CommandFailed, detail: "exit 1".into(), exit_code: Some(1) };
    world.agents[0].set_phase(&id, failed);
    world.pass(1).await;
    assert_eq!(world.state(&person, &id).await, "failed");
    world.pass(1_000).await;
    world.pass(1_000).await;
    assert_eq!(credits(&world, &person).await, [] as [Value; 0]);
}
