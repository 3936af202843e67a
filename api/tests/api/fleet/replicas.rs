//! Several replicas, retries after faults, and a control plane that died between two steps.

use futures_util::future::join_all;
use serde_json::json;
use tarn_api::app::act::Act;
use tarn_api::app::instances::apply;
use tarn_api::app::instances::dossier::Dossier;
use tarn_api::config::{Config, Rates};
use tarn_api::workers::{self, Claim, Worker};
use tarn_protocol::ids::InstanceId;
use tarn_protocol::units::Generation;
use tarn_provisioner::reconcile::HostView;
use tarn_rows::TenantScope;
use tarn_rows::segments::SegmentRow;
use tarn_store::{StoreError, Tx};

use super::world::World;
use crate::harness::Api;

on_both! {
    l22_a_late_write_under_an_old_fence_changes_nothing;
    l14_one_key_makes_one_instance_however_often_it_is_tried;
    l4_a_crash_between_ack_and_commit_is_adopted;
    workers_wake_by_themselves;
}

async fn l22_a_late_write_under_an_old_fence_changes_nothing(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    let state = world.api.server.state().clone();
    let first = Claim::take(&state, Worker::Reconcile, "one", world.now()).await.unwrap().unwrap();
    assert_eq!(Claim::take(&state, Worker::Reconcile, "two", world.now()).await.unwrap(), None);
    // Replica one sleeps for two minutes; replica two takes over.
    world.api.clock.advance_seconds(120);
    let second = Claim::take(&state, Worker::Reconcile, "two", world.now()).await.unwrap().unwrap();
    assert_eq!(second.fence, Generation::new(first.fence.get() + 1));
    let late = workers::tick(&state, first, world.now()).await.unwrap();
    assert!(late.fenced && late.changed == 0, "{late:?}");
    assert_eq!(world.state(&person, &id).await, "requested", "nothing was written");
    assert!(world.alerts().await.contains(&"stale_write".to_owned()));
    let done = workers::tick(&state, second, world.now()).await.unwrap();
    assert_eq!((done.changed, done.fenced), (1, false));
    assert_eq!(world.state(&person, &id).await, "provisioning");
    world.report(0).await;
}

async fn l14_one_key_makes_one_instance_however_often_it_is_tried(api: Api) {
    let world = World::with_host(api, 8).await;
    let person = world.person().await;
    let body = json!({"offer_id": "pool-96"});
    // Clients that hang up at every moment of the call.
    for micros in (0..20_000_u64).step_by(700) {
        let request = world.api.request("POST", "/v1/instances").bearer_auth(&person.access);
        let call = request.header("idempotency-key", "same").json(&body).send();
        let _ = tokio::time::timeout(std::time::Duration::from_micros(micros), call).await;
    }
    let tries =
        join_all((0..20).map(|_| world.api.post_once(&person.access, "/v1/instances", "same", body.clone())));
    let mut ids: Vec<String> = Vec::new();
    for got in tries.await {
        match got.status {
            201 => ids.push(got.body["id"].as_str().unwrap().to_owned()),
            _ => assert_eq!(
                (got.status, &got.body["code"]),
                (409, &json!("idempotency_key_in_flight")),
                "{}",
                got.body
            ),
        }
    }
    let mut last = world.api.post_once(&person.access, "/v1/instances", "same", body.clone()).await;
    while last.body["code"] == "idempotency_key_in_flight" {
        last = world.api.post_once(&person.access, "/v1/instances", "same", body.clone()).await;
    }
    let last = last.is(201);
    assert!(ids.iter().all(|id| *id == last["id"]), "{ids:?}");
    let list = world.api.get(&person.access, "/v1/instances").await.is(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(world.cards_held().await, 4);
    let other = json!({"offer_id": "card-24"});
    world
        .api
        .post_once(&person.access, "/v1/instances", "same", other)
        .await
        .fails(422, "idempotency_key_reused");
}

/// "Too many requests" is no answer to the create: the same key, sent again when there is room, makes the one instance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l14_a_key_that_met_the_rate_limit_still_makes_its_one_instance() {
    let limited = |config: Config| Config { rates: Rates { per_tenant: 60, ..config.rates }, ..config };
    let world = World::with_host(Api::start_with(limited).await, 8).await;
    let person = world.person().await;
    while world.api.get(&person.access, "/v1/wallet").await.status != 429 {}
    let body = json!({"offer_id": "pool-96"});
    let create = || world.api.post_once(&person.access, "/v1/instances", "same", body.clone());
    let refused = create().await;
    assert_ne!(refused.header("retry-after"), "");
    refused.fails(429, "rate_limited");
    let mut made = Vec::new();
    for _ in 0..3000 {
        match create().await {
            got if got.status == 429 => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
            got => made.push(got.is(201)["id"].clone()),
        }
        if made.len() == 3 {
            break;
        }
    }
    assert!(made.len() == 3 && made.iter().all(|id| *id == made[0]), "{made:?}");
    assert_eq!(world.cards_held().await, 4);
}

/// The agent acted on what was published, and the control plane died before it heard of it: the intent was stored first, so the next
/// report finds it.
async fn l4_a_crash_between_ack_and_commit_is_adopted(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.tick().await;
    let desired = world.agents[0].pull(&world.api).await;
    world.agents[0].obey(&desired);
    let lost = world.agents[0].next_report();
    drop(lost);
    world.api.clock.advance_seconds(60);
    world.round().await;
    assert_eq!(world.state(&person, &id).await, "running");
    // What the host has and should not have goes within one more round.
    world.terminate(&person, &id).await;
    let desired = world.agents[0].pull(&world.api).await;
    world.agents[0].obey(&desired);
    world.api.clock.advance_seconds(30);
    world.round().await;
    assert_eq!(world.state(&person, &id).await, "terminated");
    assert_eq!((world.cards_held().await, world.agents[0].instances().len()), (0, 0));
}

/// The reconcile worker reads an instance that is being prepared; before it reads the segment, the report that shows the instance
/// running is committed with the segment it opens. The worker's plan was made for a row that is gone: it must not end that segment.
/// SQLite's writers take turns, so only PostgreSQL can tell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_segment_is_not_ended_on_the_word_of_a_row_from_before_it_on_postgres() {
    let mut world = World::with_host(Api::start_on_postgres().await, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.tick().await;
    let desired = world.agents[0].pull(&world.api).await;
    world.agents[0].obey(&desired);
    let state = world.api.server.state().clone();
    let (read, has_read) = tokio::sync::watch::channel(0_u32);
    let (reported, has_reported) = tokio::sync::watch::channel(false);
    let act = Act::at(&state, world.now());
    let instance = id.clone();
    let worker = tokio::spawn(async move {
        let write = state.store.write(move |tx| {
            let (mut act, instance, read, mut has_reported) =
                (act.clone(), instance.clone(), read.clone(), has_reported.clone());
            Box::pin(async move {
                let row = tx.instance_of_any_tenant(&instance).await?.expect("the instance");
                read.send_modify(|times| *times += 1);
                has_reported.wait_for(|reported| *reported).await.expect("a report");
                let mut dossier = Dossier::load(tx, row).await?;
                apply::converge(tx, &mut act, &mut dossier, &HostView::default(), None).await
            })
        });
        write.await.unwrap();
    });
    let mut has_read_once = has_read.clone();
    has_read_once.wait_for(|times| *times == 1).await.unwrap();
    world.report(0).await;
    assert_eq!(world.state(&person, &id).await, "running");
    reported.send_replace(true);
    worker.await.unwrap();
    assert!(*has_read.borrow() > 1, "the worker's first reading was out of date");
    assert_eq!(world.state(&person, &id).await, "running");
    let (store, instance) = (&world.api.server.state().store, id.clone());
    let segments =
        store.read(move |tx| Box::pin(async move { segments(tx, &instance).await })).await.unwrap();
    assert!(segments.len() == 1 && segments[0].ended_at.is_none(), "{segments:?}");
}

async fn segments(tx: &mut Tx, id: &InstanceId) -> Result<Vec<SegmentRow>, StoreError> {
    let row = tx.instance_of_any_tenant(id).await?.expect("the instance");
    tx.segments_of_instance(&TenantScope::proven(row.tenant_id), id).await
}

/// With the workers running, `wait` returns as soon as the agent is through, without any tick by hand.
async fn workers_wake_by_themselves(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let (stop, stopping) = tokio::sync::watch::channel(false);
    let tasks = workers::spawn_workers(world.api.server.state(), &stopping);
    let id = world.create(&person, "pool-96").await;
    let mut agent = world.agents.remove(0);
    let path = format!("/v1/instances/{id}/wait?state=running&timeout=20");
    let waiting = world.api.get(&person.access, &path);
    let acting = async {
        while !agent.runs(&id) {
            agent.follow(&world.api, 20).await;
        }
    };
    let (got, ()) = futures_util::join!(waiting, acting);
    assert_eq!(got.is(200)["state"], "running");
    let never = format!("/v1/instances/{id}/wait?state=stopped&timeout=0");
    world.api.get(&person.access, &never).await.fails(408, "wait_timed_out");
    stop.send_replace(true);
    for task in tasks {
        task.await.unwrap();
    }
}
