//! Reports that come late, twice, out of order, from the wrong machine, or not at all.

use serde_json::json;
use tarn_api::clock::Clock;
use tarn_protocol::control::{
    Escape, EscapeAction, FailReason, GpuEvent, IdentifiedBy, JoinRequest, JoinResponse, Phase, UsageEvidence,
};
use tarn_protocol::units::{BootId, Bytes};

use super::hardware::Wiring;
use super::world::World;
use crate::harness::Api;

on_both! {
    l7_silence_is_a_flag_and_moves_nothing;
    l9_one_credential_on_two_living_machines_quarantines_the_host;
    l9_two_hosts_with_each_others_credential_move_nothing;
    b3_evidence_counts_once_however_it_is_sent;
    b3_evidence_of_another_host_counts_nothing;
    an_older_report_changes_nothing;
    a_join_token_makes_one_host_and_a_lost_answer_is_repeated;
    a_converged_host_is_left_alone;
    a_reboot_ends_one_segment_and_proves_the_links_again;
    what_a_workload_prints_takes_no_host_away;
    operators_alone_take_cards_out_and_put_them_back;
    b10_an_escape_that_a_host_tells_is_an_alert_with_its_evidence;
}

async fn l7_silence_is_a_flag_and_moves_nothing(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    for silence in [5, 60, 1200] {
        world.api.clock.advance_seconds(silence);
        world.tick().await;
        let seen = world.instance(&person, &id).await;
        assert_eq!(seen["state"], "running", "after {silence} s");
        assert_eq!(seen["unreachable"].is_object(), silence > 15, "after {silence} s: {seen}");
        world.round().await;
        let back = world.instance(&person, &id).await;
        assert_eq!(
            (&back["state"], &back["unreachable"]),
            (&json!("running"), &json!(null)),
            "after {silence} s"
        );
    }
    assert!(world.agents[0].runs(&id));
    world.stop(&person, &id).await;
    world.round().await;
    // Proven seconds bill, silence or not.
    assert_eq!(world.charges(&person).await[0]["seconds"], 1265);
}

async fn l9_one_credential_on_two_living_machines_quarantines_the_host(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    let mut ghost = world.agents[0].clone();
    ghost.boot_id = BootId::new("the-other-machine");
    ghost.seq = 0;
    world.pass(10).await;
    // The other machine speaks once, as a reboot would: that alone is no crime.
    let now = world.now();
    ghost.set_now(now);
    ghost.report(&world.api).await;
    let host = world.host(0).await;
    assert_eq!(host["quarantine_reason"], json!(null), "{host}");
    // The first machine goes on reporting: two are alive.
    world.api.clock.advance_seconds(30);
    world.report(0).await;
    let host = world.host(0).await;
    assert_eq!(host["quarantine_reason"], "cloned_identity", "{host}");
    assert_eq!(host["epoch"], 2);
    assert!(world.alerts().await.contains(&"cloned_identity".to_owned()));
    world.try_create(&person, json!({"offer_id": "card-24"})).await.fails(409, "no_capacity");
    assert!(world.agents[0].runs(&id), "nothing that runs was touched");
}

async fn b3_evidence_counts_once_however_it_is_sent(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    let mut sent = Vec::new();
    for _ in 0..6 {
        world.api.clock.advance_seconds(10);
        let now = world.now();
        world.agents[0].set_now(now);
        let mut report = world.agents[0].next_report();
        // Each carries its own ten seconds alone, so that none stands in for another.
        report.usage = report.usage.split_off(report.usage.len() - 1);
        sent.push(report);
    }
    // Newest first, each twice.
    for report in sent.iter().rev().chain(&sent) {
        world.agents[0].send(&world.api, report).await;
        world.tick().await;
    }
    world.stop(&person, &id).await;
    world.pass(1).await;
    // An hour later everything again.
    world.api.clock.advance_seconds(3600);
    for report in &sent {
        world.agents[0].send(&world.api, report).await;
    }
    world.tick().await;
    let charges = world.charges(&person).await;
    assert_eq!((charges.len(), &charges[0]["seconds"]), (1, &json!(60)), "{charges:?}");
    world.audit().await;
}

/// Each machine speaks as the other, both living on: neither takes the other's cards, ends its tenant or gets a new one.
async fn l9_two_hosts_with_each_others_credential_move_nothing(api: Api) {
    let mut world = World::with_host(api, 4).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.add_host(4, Wiring::BridgedPairs).await;
    world.pass(1).await;
    assert_eq!(world.state(&person, &id).await, "running");
    let [first, second] = [0, 1].map(|place| world.agents[place].credential.clone());
    world.agents[0].credential = second;
    world.agents[1].credential = first;
    for _ in 0..4 {
        world.pass(20).await;
    }
    let seen = world.instance(&person, &id).await;
    assert_eq!(seen["state"], "running", "{seen}");
    assert!(seen["unreachable"].is_object(), "nobody who may speak for it does: {seen}");
    assert!(world.agents[0].runs(&id), "and it goes on running");
    assert_eq!(world.cards_held().await, 4);
    let alerts = world.alerts().await;
    for kind in ["swapped_identity", "host_unreachable"] {
        assert!(alerts.contains(&kind.to_owned()), "{kind}: {alerts:?}");
    }
    for place in [0, 1] {
        assert_eq!(world.host(place).await["quarantine_reason"], "swapped_identity");
    }
    world.try_create(&person, json!({"offer_id": "card-24"})).await.fails(409, "no_capacity");
    // Put right, all is as it was.
    let [first, second] = [1, 0].map(|place| world.agents[place].credential.clone());
    world.agents[0].credential = first;
    world.agents[1].credential = second;
    for _ in 0..4 {
        world.pass(20).await;
    }
    let seen = world.instance(&person, &id).await;
    assert_eq!((&seen["state"], &seen["unreachable"]), (&json!("running"), &json!(null)), "{seen}");
    assert!(world.agents[0].runs(&id));
    world.stop(&person, &id).await;
    world.pass(1).await;
    // Its evidence waited until it could be believed: 80 s swapped and 80 s put right.
    let charges = world.charges(&person).await;
    assert_eq!((charges.len(), &charges[0]["seconds"]), (1, &json!(160)), "{charges:?}");
}

async fn b3_evidence_of_another_host_counts_nothing(api: Api) {
    let mut world = World::with_host(api, 4).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.add_host(4, Wiring::BridgedPairs).await;
    world.pass(1).await;
    world.pass(60).await;
    // The first host is silent; the second claims an hour of it, in its own boot and in the first one's.
    world.api.clock.advance_seconds(600);
    let theirs = world.agents[0].claim(&id, 3600);
    for boot in [world.agents[0].boot_id.clone(), world.agents[1].boot_id.clone()] {
        let mut report = world.agents[1].next_report();
        report.usage = vec![UsageEvidence { boot_id: boot, ..theirs.clone() }];
        world.agents[1].post_report(&world.api, &report).await.is(200);
        world.tick().await;
        let charges = world.charges(&person).await;
        assert_eq!((charges.len(), &charges[0]["seconds"]), (1, &json!(60)), "{charges:?}");
    }
    world.pass(0).await;
    world.stop(&person, &id).await;
    world.pass(1).await;
    assert_eq!(world.charges(&person).await[0]["seconds"], 660, "what the first host proves counts");
    world.audit().await;
}

async fn an_older_report_changes_nothing(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.tick().await;
    let empty = world.agents[0].next_report();
    world.pass(1).await;
    assert_eq!(world.state(&person, &id).await, "running");
    let seen = world.agents[0].send(&world.api, &empty).await;
    assert!(!seen.fresh);
    let repeated = world.agents[0].next_report();
    assert!(world.agents[0].send(&world.api, &repeated).await.fresh);
    assert!(!world.agents[0].send(&world.api, &repeated).await.fresh);
    assert_eq!(world.state(&person, &id).await, "running");
    assert_eq!(world.cards_held().await, 4);
}

async fn a_join_token_makes_one_host_and_a_lost_answer_is_repeated(api: Api) {
    let world = World::on(api).await;
    let made =
        world.api.post(&world.operator.access, "/v1/admin/join-tokens", json!({"region": "r"})).await.is(201);
    let request = |nonce: &str| {
        let request = JoinRequest {
            token: made["token"].as_str().unwrap().to_owned(),
            name: "h".into(),
            boot_id: BootId::new("b"),
            agent_version: "0".into(),
            nonce: nonce.into(),
        };
        serde_json::to_value(request).unwrap()
    };
    let join = |body| world.api.post_openly("/agent/v1/join", body);
    let first: JoinResponse = serde_json::from_value(join(request("n1")).await.is(200)).unwrap();
    let again: JoinResponse = serde_json::from_value(join(request("n1")).await.is(200)).unwrap();
    assert_eq!(first.host_id, again.host_id);
    join(request("n2")).await.fails(401, "unauthenticated");
    // Only the newest credential speaks for the host.
    world.api.get(&first.credential, "/agent/v1/desired").await.fails(401, "unauthenticated");
    world.api.get(&again.credential, "/agent/v1/desired").await.is(200);
    let hosts = world.api.get(&world.operator.access, "/v1/admin/hosts").await.is(200);
    assert_eq!(hosts["items"].as_array().unwrap().len(), 1);
}

async fn a_converged_host_is_left_alone(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    for _ in 0..3 {
        world.pass(10).await;
    }
    let revision = world.host(0).await["desired_revision"].clone();
    let events = world.api.get(&person.access, &format!("/v1/instances/{id}/events")).await.is(200);
    for _ in 0..20 {
        world.pass(10).await;
    }
    assert_eq!(world.host(0).await["desired_revision"], revision, "desired state is a level");
    assert_eq!(world.api.get(&person.access, &format!("/v1/instances/{id}/events")).await.is(200), events);
}

async fn a_reboot_ends_one_segment_and_proves_the_links_again(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    world.pass(100).await;
    world.api.clock.advance_seconds(60);
    let now = world.now();
    world.agents[0].set_now(now);
    world.agents[0].reboot();
    for _ in 0..4 {
        world.pass(10).await;
    }
    assert_eq!(world.state(&person, &id).await, "running");
    let offer = world.api.get(&person.access, "/v1/offers/pool-96").await.is(200);
    assert_eq!(offer["availability"]["count"], 1, "{offer}");
    world.stop(&person, &id).await;
    world.pass(1).await;
    let charges = world.charges(&person).await;
    assert_eq!(charges.len(), 2, "{charges:?}");
    assert_eq!(charges.iter().filter(|line| line["seconds"] == 100).count(), 1, "{charges:?}");
}

async fn operators_alone_take_cards_out_and_put_them_back(api: Api) {
    let mut world = World::with_host(api, 4).await;
    let person = world.person().await;
    let card = world.agents[0].uuid(0);
    let operator = world.operator.access.clone();
    let quarantine = format!("/v1/admin/gpus/{card}/quarantine");
    world.api.post(&operator, &quarantine, json!({"reason": "fan"})).await.is(200);
    let inventory = super::hardware::inventory(1, 4);
    world.agents[0].set_inventory(inventory);
    world.round().await;
    let offer = world.api.get(&person.access, "/v1/offers/card-24").await.is(200);
    assert_eq!(offer["availability"]["count"], 3, "a fresh inventory does not lift it: {offer}");
    world.api.post(&operator, &format!("/v1/admin/gpus/{card}/return"), json!({})).await.is(200);
    world.round().await;
    world.round().await;
    let offer = world.api.get(&person.access, "/v1/offers/pool-96").await.is(200);
    assert_eq!(offer["availability"]["count"], 1, "its links were probed again: {offer}");
}

async fn b10_an_escape_that_a_host_tells_is_an_alert_with_its_evidence(api: Api) {
    let mut world = World::with_host(api, 4).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    let now = world.api.clock.now();
    let agent = &mut world.agents[0];
    let at = agent.mono(now);
    let escape = Escape {
        instance_id: Some(id.clone()),
        identified_by: IdentifiedBy::Cgroup,
        pid: 4711,
        cgroup: Some(format!("/tarn/{id}")),
        start_ticks: Some(99),
        bytes: Bytes::mib(612),
        samples: 1,
        first_seen_mono_ms: at,
        last_seen_mono_ms: at,
        action: EscapeAction::Killed,
    };
    let event = GpuEvent {
        uuid: agent.uuid(1),
        mono_ms: at,
        xid: 0,
        detail: "donor_escape: process 4711".to_owned(),
        escape: Some(Box::new(escape.clone())),
    };
    let mut report = agent.next_report();
    report.gpu_events = vec![event];
    agent.send(&world.api, &report).await;
    let page = world.api.get(&world.operator.access, "/v1/admin/alerts").await.is(200);
    let alerts = page["items"].as_array().unwrap();
    let [alert] = alerts.as_slice() else { panic!("{alerts:?}") };
    assert_eq!((&alert["kind"], &alert["subject"]), (&json!("donor_escape"), &json!(id)), "{alert}");
    assert_eq!(alert["detail"]["escape"], json!(escape), "{alert}");
    assert_eq!(alert["detail"]["gpu_uuid"], json!(world.agents[0].uuid(1)));
    world.pass(1).await;
    assert_eq!(world.state(&person, &id).await, "running", "the process went, not the instance");
    world.audit().await;
}

/// Any byte may stand in a workload's output; one that the database does not take must not cost the host its report.
async fn what_a_workload_prints_takes_no_host_away(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let (loud, quiet) = (world.create(&person, "card-24").await, world.create(&person, "card-24").await);
    let (shouting, crying) = (world.create(&person, "card-24").await, world.create(&person, "card-24").await);
    world.pass(1).await;
    world.pass(1).await;
    world.api.clock.advance_seconds(10);
    let now = world.now();
    world.agents[0].set_now(now);
    let mut report = world.agents[0].next_report();
    // 64 KiB of what must be escaped are 384 KiB of JSON.
    for seen in &mut report.instances {
        seen.log_tail = Some("\u{1}".repeat(64 * 1024));
    }
    for seen in report.instances.iter_mut().filter(|seen| seen.instance_id == loud) {
        seen.log_tail = Some("before\0after \\u0000 \u{1f4a5}".to_owned());
        seen.phase = Phase::Failed {
            reason: FailReason::CommandFailed,
            detail: "\0 says it".to_owned(),
            exit_code: Some(1),
        };
    }
    world.agents[0].send(&world.api, &report).await;
    let log = world.api.get(&person.access, &format!("/v1/instances/{loud}/logs")).await.is(200);
    assert_eq!(log["tail"], "before\u{fffd}after \\u0000 \u{1f4a5}", "{log}");
    assert_eq!(world.state(&person, &loud).await, "failed");
    for id in [quiet, shouting, crying] {
        assert_eq!(world.state(&person, &id).await, "running");
    }
    assert_eq!(world.host(0).await["unreachable_since"], json!(null));
}
