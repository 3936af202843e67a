//! Invariants of money where the database decides: racing starts, a hundred ends at once, credit that expires while nobody is there,
//! hosts that sleep, runs that begin in trouble.

use futures_util::future::{join, join_all};
use serde_json::{Value, json};
use tarn_api::workers;
use tarn_protocol::control::Phase;

use crate::fleet::agent::Script;
use crate::fleet::world::World;
use crate::harness::{Api, Person};

on_both! {
    m3_racing_starts_never_rely_on_the_same_money;
    m8_a_settlement_older_than_the_stop_it_waited_for_hides_no_second;
    m11_a_hundred_racing_ends_close_one_segment_once;
    m13_credit_that_expired_during_an_outage_pays_for_what_ran_before_its_expiry;
    m9_a_host_that_slept_bills_nothing_beyond_an_accepted_stop;
    m18_a_run_first_seen_degraded_bills_from_the_report_that_shows_it_well;
}

async fn price(world: &World, offer: &str, per_hour: &str) {
    let body = json!({"offer_id": offer, "price_per_hour": {"amount": per_hour, "currency": "CNY"}});
    world.api.change_price(&world.operator, body).await.is(201);
    world.api.clock.advance_seconds(1);
}

async fn quota(world: &World, person: &Person) {
    let path = format!("/v1/admin/tenants/{}", person.tenant_id);
    let quota = json!({"quota_cards": 100, "quota_bytes": 1_u64 << 50});
    world.api.patch(&world.operator.access, &path, quota).await.is(200);
}

fn seconds(charges: &[Value]) -> i64 {
    charges.iter().map(|line| line["seconds"].as_i64().unwrap()).sum()
}

/// Ten yuan hold three hours at three yuan, whoever asks how often at once.
async fn m3_racing_starts_never_rely_on_the_same_money(api: Api) {
    let world = World::with_host(api, 8).await;
    let person = world.person().await;
    quota(&world, &person).await;
    price(&world, "card-24", "3.00").await;
    let creates = (0..20).map(|number| {
        let (api, person) = (&world.api, &person);
        async move {
            let body = json!({"offer_id": "card-24"});
            api.post_once(&person.access, "/v1/instances", &format!("race-{number}"), body).await
        }
    });
    let got = join_all(creates).await;
    assert_eq!(got.iter().filter(|got| got.status == 201).count(), 3);
    for refused in got.into_iter().filter(|got| got.status != 201) {
        refused.fails(402, "balance_too_low");
    }
    let wallet = world.wallet(&person).await;
    assert_eq!((&wallet["held"]["amount"], &wallet["available"]["amount"]), (&json!("9.00"), &json!("1.00")));
    world.audit().await;
}

/// It settles up to its own instant and leaves the rest to the next one: until then the audit says what is not settled.
async fn m8_a_settlement_older_than_the_stop_it_waited_for_hides_no_second(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    world.api.clock.advance_seconds(60);
    world.report(0).await;
    let begun = world.now();
    world.api.clock.advance_seconds(2);
    world.report(0).await;
    world.stop(&person, &id).await;
    workers::tick_all(world.api.server.state(), begun).await.unwrap();
    assert_eq!(seconds(&world.charges(&person).await), 60);
    let audit = world.api.get(&world.operator.access, "/v1/admin/audit").await.is(200);
    assert_eq!(audit["audited"]["unsettled_seconds"], 2, "{audit}");
    world.pass(1).await;
    assert_eq!(seconds(&world.charges(&person).await), 62);
    world.audit().await;
}

async fn m11_a_hundred_racing_ends_close_one_segment_once(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    world.pass(60).await;
    let (stop, own) = (format!("/v1/instances/{id}/actions/stop"), format!("/v1/instances/{id}"));
    let ends = (0..100).map(|number| {
        let (api, person, stop, own) = (&world.api, &person, &stop, &own);
        async move {
            let got = if number % 2 == 0 {
                api.post(&person.access, stop, json!({})).await
            } else {
                api.delete(&person.access, own).await
            };
            // A stop that comes after another end finds nothing to stop.
            assert!([200, 202, 409].contains(&got.status), "{} {}", got.status, got.body);
        }
    });
    let (state, now) = (world.api.server.state(), world.now());
    let work = (0..6).map(|_| workers::tick_all(state, now));
    let (_, ticks) = join(join_all(ends), join_all(work)).await;
    assert!(ticks.iter().all(Result::is_ok), "{ticks:?}");
    world.pass(30).await;
    world.pass(1).await;
    assert_eq!(world.state(&person, &id).await, "terminated");
    let charges = world.charges(&person).await;
    assert_eq!((charges.len(), seconds(&charges)), (1, 60), "{charges:?}");
    assert_eq!(world.cards_held().await, 0);
    world.audit().await;
}

/// The trial pays the first hour, a promotion that ends after the second hour pays until then; the control plane is away from half an
/// hour on and comes back an hour after it all ended.
async fn m13_credit_that_expired_during_an_outage_pays_for_what_ran_before_its_expiry(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    price(&world, "pool-96", "10.00").await;
    let ends = jiff::Timestamp::from_microsecond(world.now().plus_seconds(7_200).as_micros()).unwrap();
    let credit = json!({
        "tenant_id": person.tenant_id, "kind": "promo", "reason": "two hours", "expires_at": ends.to_string(),
        "amount": {"amount": "20.00", "currency": "CNY"},
    });
    world.api.post_once(&world.operator.access, "/v1/admin/credits", "promo", credit).await.is(201);
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    world.pass(1_799).await;
    world.api.clock.advance_seconds(9_000);
    world.report(0).await;
    world.round().await;
    world.pass(1).await;
    assert_eq!(world.state(&person, &id).await, "stopped");
    let charges = world.charges(&person).await;
    assert!((7_195..=7_200).contains(&seconds(&charges)), "the promotion was passed over: {charges:?}");
    let wallet = world.wallet(&person).await;
    assert_eq!(
        (&wallet["credit"]["amount"], &wallet["available"]["amount"]),
        (&json!("0.00"), &json!("0.00"))
    );
    world.audit().await;
}

/// Ten minutes asleep put the host's clock ten minutes behind; cut off, it runs on after the stop.
async fn m9_a_host_that_slept_bills_nothing_beyond_an_accepted_stop(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    world.pass(100).await;
    world.api.clock.advance_seconds(600);
    world.agents[0].sleep(600);
    world.round().await;
    world.pass(50).await;
    world.stop(&person, &id).await;
    world.api.clock.advance_seconds(300);
    world.report(0).await;
    world.pass(1).await;
    world.pass(1).await;
    let charges = world.charges(&person).await;
    assert_eq!((charges.len(), seconds(&charges)), (1, 150), "{charges:?}");
}

async fn m18_a_run_first_seen_degraded_bills_from_the_report_that_shows_it_well(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    world.agents[0].scripts = vec![Script::Hang];
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    let ready_mono_ms = world.agents[0].mono(world.now());
    let degraded = Phase::Degraded { ready_mono_ms, reason: "the pool's broker is down".to_owned() };
    world.agents[0].set_phase(&id, degraded);
    world.report(0).await;
    assert_eq!(world.state(&person, &id).await, "degraded");
    world.api.clock.advance_seconds(100);
    world.agents[0].set_phase(&id, Phase::Running { ready_mono_ms });
    world.report(0).await;
    assert_eq!(world.state(&person, &id).await, "running");
    world.api.clock.advance_seconds(60);
    let now = world.now();
    world.agents[0].set_now(now);
    let mut report = world.agents[0].next_report();
    report.usage = vec![world.agents[0].claim(&id, 160)];
    world.agents[0].send(&world.api, &report).await;
    world.stop(&person, &id).await;
    world.pass(1).await;
    let charges = world.charges(&person).await;
    assert_eq!((charges.len(), seconds(&charges)), (1, 60), "{charges:?}");
}
