//! Whole lives of instances.

use serde_json::json;
use tarn_protocol::control::FailReason;

use super::agent::Script;
use super::world::World;
use crate::harness::Api;

on_both! {
    a_pool_is_rented_run_stopped_and_billed_on_its_primary_alone;
    l1_a_termination_without_contact_waits_for_proof_and_costs_nothing;
    l2_a_delete_at_any_step_ends_terminated_with_the_cards_free;
    l10_a_failed_command_stays_readable_with_reason_and_log_and_costs_nothing;
    p6_the_next_matched_set_is_used_and_the_attempt_is_not_billed;
    b9_the_ledger_is_the_sum_of_billable_seconds_restarts_included;
    two_tenants_never_see_each_other;
    a_time_to_live_ends_an_instance;
}

async fn a_pool_is_rented_run_stopped_and_billed_on_its_primary_alone(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;

    let offers = world.api.get(&person.access, "/v1/offers").await.is(200);
    let pool =
        offers["items"].as_array().unwrap().iter().find(|offer| offer["id"] == "pool-96").unwrap().clone();
    assert_eq!(pool["availability"]["count"], 2, "{pool}");
    assert_eq!((&pool["cards"], &pool["metered_cards"]), (&json!(4), &json!(1)));
    assert_eq!(pool["price"]["per_hour"], json!({"amount": "2.40", "currency": "CNY"}));
    assert_eq!(
        (&pool["links"]["class_min"], &pool["links"]["class_max"]),
        (&json!("pcie_p2p"), &json!("nvlink"))
    );

    let id = world.create(&person, "pool-96").await;
    assert_eq!(world.state(&person, &id).await, "requested");
    world.pass(1).await;
    let running = world.instance(&person, &id).await;
    assert_eq!(running["state"], "running", "{running}");
    assert_eq!(running["pool"]["peer_gpus"].as_array().unwrap().len(), 3);
    assert_eq!(running["actions"], json!(["stop", "restart", "terminate"]));
    assert_eq!(world.cards_held().await, 4);
    let residency = world.api.get(&person.access, &format!("/v1/instances/{id}/residency")).await.is(200);
    assert_eq!(residency["cards"].as_array().unwrap().len(), 4);

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
    let events = world.api.get(&person.access, &format!("/v1/instances/{id}/events")).await.is(200);
    let kinds: Vec<&str> =
        events["items"].as_array().unwrap().iter().map(|event| event["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"instance.running") && kinds.contains(&"instance.stopped"), "{kinds:?}");
}

async fn l1_a_termination_without_contact_waits_for_proof_and_costs_nothing(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    world.pass(50).await;

    // The network is cut: nothing is pulled or reported any more.
    let ending = world.terminate(&person, &id).await;
    assert_eq!((&ending["state"], &ending["billable"]), (&json!("terminating"), &json!(false)));
    for _ in 0..10 {
        world.api.clock.advance_seconds(30);
        world.tick().await;
    }
    let waiting = world.instance(&person, &id).await;
    assert_eq!(waiting["state"], "terminating");
    assert!(waiting["unreachable"]["since"].is_string(), "{waiting}");
    assert_eq!(world.cards_held().await, 4, "no card is free without proof");
    let alerts = world.alerts().await;
    assert!(
        alerts.contains(&"termination_unproven".to_owned())
            && alerts.contains(&"host_unreachable".to_owned()),
        "{alerts:?}"
    );
    // Again is the same.
    world.terminate(&person, &id).await;

    world.round().await;
    world.round().await;
    assert_eq!(world.state(&person, &id).await, "terminated");
    assert_eq!(world.cards_held().await, 0);
    let charges = world.charges(&person).await;
    assert_eq!((charges.len(), &charges[0]["seconds"]), (1, &json!(50)), "{charges:?}");
}

async fn l2_a_delete_at_any_step_ends_terminated_with_the_cards_free(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    // After 0..12 single steps of the two sides, whoever's turn it is.
    for steps in 0..12_u32 {
        world.agents[0].scripts = if steps % 2 == 0 { vec![Script::Run] } else { vec![Script::Hang] };
        let id = world.create(&person, "pool-96").await;
        for step in 0..steps {
            world.api.clock.advance_seconds(1);
            match step % 3 {
                0 => world.tick().await,
                1 => {
                    let now = world.now();
                    let desired = world.agents[0].pull(&world.api).await;
                    world.agents[0].set_now(now);
                    world.agents[0].obey(&desired);
                }
                _ => world.report(0).await,
            }
        }
        world.terminate(&person, &id).await;
        for _ in 0..3 {
            world.pass(1).await;
        }
        assert_eq!(world.state(&person, &id).await, "terminated", "after {steps} steps");
        assert_eq!(world.cards_held().await, 0, "after {steps} steps");
        assert!(!world.agents[0].has(&id), "after {steps} steps");
    }
    let wallet = world.wallet(&person).await;
    assert_eq!(wallet["held"]["amount"], "0.00", "{wallet}");
}

async fn l10_a_failed_command_stays_readable_with_reason_and_log_and_costs_nothing(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    for (reason, code) in
        [(FailReason::CommandFailed, "command_failed"), (FailReason::OutOfMemory, "out_of_memory")]
    {
        world.agents[0].scripts = vec![Script::Fail(reason, "exit status 127")];
        let id = world.create(&person, "pool-96").await;
        world.pass(1).await;
        let failed = world.instance(&person, &id).await;
        assert_eq!((&failed["state"], &failed["reason_code"]), (&json!("failed"), &json!(code)), "{failed}");
        assert_eq!(failed["reason_detail"], "exit status 127");
        assert_eq!(failed["actions"], json!(["start", "terminate"]));
        assert_eq!(world.cards_held().await, 0);
        // A day of every worker's rounds, in the middle of which the host loses all that it knew of it.
        for hour in 0..25 {
            if hour == 12 {
                world.agents[0].reboot();
            }
            world.pass(3600).await;
        }
        let kept = world.instance(&person, &id).await;
        for field in ["state", "reason_code", "reason_detail", "since", "generation"] {
            assert_eq!(kept[field], failed[field], "{kept}");
        }
        let log = world.api.get(&person.access, &format!("/v1/instances/{id}/logs")).await.is(200);
        assert_eq!(log["tail"], format!("log of {id}\n"));
    }
    assert_eq!(world.charges(&person).await.len(), 0);
    assert_eq!(world.wallet(&person).await["held"]["amount"], "0.00");
}

async fn p6_the_next_matched_set_is_used_and_the_attempt_is_not_billed(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    world.agents[0].scripts =
        vec![Script::Fail(FailReason::PoolVerifyFailed, "peer enabling failed"), Script::Run];
    let id = world.create(&person, "pool-96").await;
    let first = world.instance(&person, &id).await["pool"]["primary_gpu"].clone();
    for _ in 0..4 {
        world.pass(10).await;
    }
    let running = world.instance(&person, &id).await;
    assert_eq!((&running["state"], &running["generation"]), (&json!("running"), &json!(2)), "{running}");
    assert_ne!(running["pool"]["primary_gpu"], first);
    assert_eq!(world.cards_held().await, 4);
    world.stop(&person, &id).await;
    world.pass(1).await;
    let charges = world.charges(&person).await;
    assert_eq!(charges.len(), 1, "{charges:?}");
    assert_eq!(charges[0]["primary_gpu_uuid"], running["pool"]["primary_gpu"], "{charges:?}");

    // When every set fails, so does the instance, for that reason.
    world.agents[0].scripts = vec![Script::Fail(FailReason::P2pDataMismatch, "pattern differs")];
    let id = world.create(&person, "pool-96").await;
    for _ in 0..8 {
        world.pass(1).await;
    }
    let failed = world.instance(&person, &id).await;
    assert_eq!(
        (&failed["state"], &failed["reason_code"]),
        (&json!("failed"), &json!("p2p_data_mismatch")),
        "{failed}"
    );
    assert_eq!(world.cards_held().await, 0);
    assert_eq!(world.charges(&person).await.len(), 1);
}

async fn b9_the_ledger_is_the_sum_of_billable_seconds_restarts_included(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    let path = format!("/v1/instances/{id}/actions");
    world.pass(30).await;
    world.pass(100).await;
    world.api.post_once(&person.access, &format!("{path}/restart"), "r1", json!({})).await.is(202);
    world.pass(20).await;
    assert_eq!(world.state(&person, &id).await, "running");
    world.pass(200).await;
    world.stop(&person, &id).await;
    world.pass(500).await;
    assert_eq!(world.state(&person, &id).await, "stopped");
    world.api.post_once(&person.access, &format!("{path}/start"), "s1", json!({})).await.is(202);
    world.pass(40).await;
    world.pass(300).await;
    world.terminate(&person, &id).await;
    world.pass(1).await;
    world.pass(1).await;
    assert_eq!(world.state(&person, &id).await, "terminated");

    let mut seconds: Vec<i64> =
        world.charges(&person).await.iter().map(|line| line["seconds"].as_i64().unwrap()).collect();
    seconds.sort_unstable();
    assert_eq!(seconds, [100, 200, 300]);
    // 66666 + 133333 + 200000 micros.
    let wallet = world.wallet(&person).await;
    assert_eq!(wallet["credit"]["amount"], "9.600001", "{wallet}");
    world.audit().await;
}

async fn two_tenants_never_see_each_other(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let (ada, bob) = (world.person().await, world.person().await);
    let (mine, other) = (world.create(&ada, "pool-48").await, world.create(&bob, "pool-48").await);
    world.pass(1).await;
    let list = world.api.get(&ada.access, "/v1/instances").await.is(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["items"][0]["id"], mine.as_str());
    world.api.delete(&ada.access, &format!("/v1/instances/{other}")).await.fails(404, "not_found");
    world
        .api
        .post(&ada.access, &format!("/v1/instances/{other}/actions/stop"), json!({}))
        .await
        .fails(404, "not_found");
    assert_eq!(world.state(&bob, &other).await, "running");
}

async fn a_time_to_live_ends_an_instance(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let made = world.try_create(&person, json!({"offer_id": "card-24", "ttl_seconds": 60})).await.is(201);
    let id = made["id"].as_str().unwrap().parse().unwrap();
    world.pass(1).await;
    assert_eq!(world.state(&person, &id).await, "running");
    world.pass(60).await;
    world.pass(1).await;
    let ended = world.instance(&person, &id).await;
    assert_eq!(
        (&ended["state"], &ended["reason_code"]),
        (&json!("terminated"), &json!("ttl_reached")),
        "{ended}"
    );
}
