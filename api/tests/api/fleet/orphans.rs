//! R6, R12: what a host shows and nobody rents is kept, then removed; and nothing is destroyed in bulk without being asked.

use serde_json::{Value, json};
use tarn_protocol::control::Phase;
use tarn_protocol::ids::InstanceId;
use tarn_provisioner::reconcile::{DESTRUCTIVE_ACTIONS_MAX, ORPHAN_GRACE_SECONDS, WINDOW_SECONDS};

use tarn_rows::Page;

use super::hardware::Wiring;
use super::world::World;
use crate::harness::{Api, Person};

on_both! {
    r6_an_orphan_is_kept_for_its_grace_from_first_sight_and_then_removed_with_a_line_in_the_log;
    r6_an_orphan_that_goes_by_itself_is_forgotten;
    r6_what_has_an_instance_is_never_removed_as_an_orphan;
    r12_while_hosts_are_lost_no_orphan_is_removed;
    r12_a_window_removes_no_more_than_its_slots;
    r12_a_report_gives_up_no_instance_while_hosts_are_lost;
}

fn stranger(world: &World, number: u128) -> InstanceId {
    InstanceId::new(world.now(), (1 << 70) + number)
}

/// A world of one host with a running instance, and `count` workloads on it that no control plane knows.
async fn with_orphans(api: Api, count: u128) -> (World, Person, InstanceId, Vec<InstanceId>) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "card-24").await;
    world.pass(1).await;
    let like = world.agents[0].told(&id);
    let orphans: Vec<InstanceId> = (0..count).map(|number| stranger(&world, number)).collect();
    for orphan in &orphans {
        world.agents[0].plant(&like, orphan);
    }
    (world, person, id, orphans)
}

async fn open_orphans(world: &World) -> usize {
    // A page of the route would be full of silences.
    let store = world.api.server.state().store.clone();
    let open = store.read(move |tx| Box::pin(async move { tx.alerts_open(Page::first(200)).await }));
    open.await.unwrap().iter().filter(|alert| alert.kind == "orphan").count()
}

async fn lines(world: &World) -> Vec<Value> {
    let page = world.api.get(&world.operator.access, "/v1/admin/log?limit=100").await.is(200);
    let lines = page["items"].as_array().unwrap().iter();
    lines.filter(|line| line["action"] == "orphan.remove").cloned().collect()
}

async fn r6_an_orphan_is_kept_for_its_grace_from_first_sight_and_then_removed_with_a_line_in_the_log(
    api: Api,
) {
    let (mut world, person, id, orphans) = with_orphans(api, 1).await;
    let orphan = &orphans[0];
    // Shown again and again, which begins nothing anew.
    let mut kept = 0;
    while kept < ORPHAN_GRACE_SECONDS {
        world.pass(60).await;
        kept += 60;
        assert!(world.agents[0].has(orphan), "kept for {kept} s");
    }
    assert_eq!((open_orphans(&world).await, lines(&world).await), (1, vec![]));
    for _ in 0..2 {
        world.pass(60).await;
    }
    assert!(!world.agents[0].has(orphan), "its grace is over");
    let [line] = &lines(&world).await[..] else { panic!("one line in the log") };
    assert_eq!(
        (&line["subject"], &line["detail"]["host_id"], &line["credential_id"]),
        (&json!(orphan), &json!(world.agents[0].host_id), &json!("worker")),
        "{line}"
    );
    world.pass(60).await;
    assert_eq!(open_orphans(&world).await, 0, "nothing is left to look at");
    assert_eq!(world.state(&person, &id).await, "running");
    assert!(world.agents[0].runs(&id));
    assert_eq!(world.charges(&person).await.len(), 1, "an orphan is charged to nobody");
    world.audit().await;
}

async fn r6_an_orphan_that_goes_by_itself_is_forgotten(api: Api) {
    let (mut world, _, id, orphans) = with_orphans(api, 1).await;
    world.pass(ORPHAN_GRACE_SECONDS / 2).await;
    assert_eq!(open_orphans(&world).await, 1);
    let like = world.agents[0].told(&id);
    world.agents[0].lose(&orphans[0]);
    world.pass(1).await;
    assert_eq!(open_orphans(&world).await, 0);
    // Seen again, it is new: its grace begins again.
    world.agents[0].plant(&like, &orphans[0]);
    world.pass(1).await;
    world.pass(ORPHAN_GRACE_SECONDS / 2 + 60).await;
    world.pass(1).await;
    assert!(world.agents[0].has(&orphans[0]));
    assert_eq!((open_orphans(&world).await, lines(&world).await), (1, vec![]));
}

/// A machine that joined again under another name shows what is rented on it: nobody's cards, somebody's workload.
async fn r6_what_has_an_instance_is_never_removed_as_an_orphan(api: Api) {
    let (mut world, person, id, _) = with_orphans(api, 0).await;
    let like = world.agents[0].told(&id);
    world.add_host(8, Wiring::BridgedPairs).await;
    world.agents[1].plant(&like, &id);
    let ready_mono_ms = world.agents[1].mono(world.now());
    world.agents[1].set_phase(&id, Phase::Running { ready_mono_ms });
    // The machine of the first name is gone; only the second speaks.
    for _ in 0..3 {
        world.api.clock.advance_seconds(ORPHAN_GRACE_SECONDS);
        world.tick().await;
        let now = world.now();
        world.agents[1].step(&world.api, now).await;
        world.tick().await;
    }
    assert!(world.agents[1].runs(&id), "what runs for a tenant goes on");
    assert_eq!(world.state(&person, &id).await, "running");
    assert_eq!((open_orphans(&world).await, lines(&world).await), (1, vec![]));
}

async fn r12_while_hosts_are_lost_no_orphan_is_removed(api: Api) {
    let (mut world, _, _, orphans) = with_orphans(api, 1).await;
    for _ in 0..2 {
        world.add_host(2, Wiring::Stock).await;
    }
    world.pass(1).await;
    // One of three is silent: more than three in ten.
    let silent = world.agents.pop().unwrap();
    for _ in 0..3 {
        world.pass(ORPHAN_GRACE_SECONDS).await;
    }
    assert!(world.agents[0].has(&orphans[0]));
    assert_eq!((open_orphans(&world).await, lines(&world).await), (1, vec![]));
    world.agents.push(silent);
    world.round().await;
    world.pass(1).await;
    assert!(!world.agents[0].has(&orphans[0]));
    assert_eq!(lines(&world).await.len(), 1);
}

async fn r12_a_window_removes_no_more_than_its_slots(api: Api) {
    let slots = DESTRUCTIVE_ACTIONS_MAX as usize;
    let (mut world, person, id, orphans) = with_orphans(api, u128::from(DESTRUCTIVE_ACTIONS_MAX) + 5).await;
    world.pass(1).await;
    let left = |world: &World| orphans.iter().filter(|orphan| world.agents[0].has(orphan)).count();
    // A round near the beginning of a window, then more of them in the same one.
    let into = (world.now().as_micros() / 1_000_000 + ORPHAN_GRACE_SECONDS) % WINDOW_SECONDS;
    world.pass(ORPHAN_GRACE_SECONDS + WINDOW_SECONDS - into + 1).await;
    for _ in 0..5 {
        world.pass(10).await;
        assert_eq!(left(&world), 5, "of {slots} slots");
    }
    world.pass(WINDOW_SECONDS).await;
    world.pass(1).await;
    assert_eq!((left(&world), lines(&world).await.len()), (0, slots + 5));
    assert_eq!(world.state(&person, &id).await, "running");
}

/// The host itself says that it has lost the instance, while a large part of the fleet is silent: the fault may well be ours.
async fn r12_a_report_gives_up_no_instance_while_hosts_are_lost(api: Api) {
    let (mut world, person, id, _) = with_orphans(api, 0).await;
    for _ in 0..2 {
        world.add_host(2, Wiring::Stock).await;
    }
    world.pass(1).await;
    let silent = world.agents.pop().unwrap();
    world.pass(30).await;
    world.agents[0].lose(&id);
    world.report(0).await;
    assert_eq!(world.state(&person, &id).await, "running", "held by the brake");
    assert!(world.alerts().await.contains(&"breaker_held".to_owned()));
    assert_eq!(world.cards_held().await, 1);
    world.agents.push(silent);
    world.report(2).await;
    world.report(0).await;
    let failed = world.instance(&person, &id).await;
    assert_eq!(
        (&failed["state"], &failed["reason_code"]),
        (&json!("failed"), &json!("host_lost")),
        "{failed}"
    );
    assert!(!world.alerts().await.contains(&"breaker_held".to_owned()));
    assert_eq!(world.cards_held().await, 0);
    world.audit().await;
}
