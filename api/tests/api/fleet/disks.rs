//! Disks as an item of the bill, in virtual time.

use serde_json::{Value, json};
use tarn_billing::money::Micros;
use tarn_protocol::control::FailReason;
use tarn_protocol::ids::InstanceId;

use super::agent::Script;
use super::hardware::Wiring;
use super::world::World;
use crate::harness::{Api, Person};

on_both! {
    a_disk_costs_from_ready_until_its_deletion_is_accepted_also_while_stopped;
    a_start_that_never_became_ready_leaves_no_disk_to_charge;
    the_start_gate_counts_the_disk_and_its_size_has_bounds;
    a_disk_whose_money_ended_is_kept_charged_again_and_in_the_end_goes;
    a_new_price_of_disks_splits_the_line_exactly;
    a_start_goes_to_the_host_that_has_the_disk;
}

async fn create(world: &mut World, person: &Person, disk_gb: u32) -> InstanceId {
    let order = json!({"offer_id": "card-24", "disk_gb": disk_gb});
    let made = world.try_create(person, order).await.is(201);
    assert_eq!(
        (&made["disk"]["billing"], &made["disk"]["enforced"], &made["keeps_costing"]),
        (&json!("not_yet"), &json!(false), &json!([])),
        "{made}"
    );
    made["id"].as_str().unwrap().parse().unwrap()
}

/// Every charge follows from the facts, those of disks too.
async fn audited(world: &World) -> Value {
    let found = world.api.get(&world.operator.access, "/v1/admin/audit").await.is(200);
    assert_eq!((&found["consistent"], &found["difference"]), (&json!(true), &json!(null)), "{found}");
    found["audited"].clone()
}

/// The lines of disks with this SKU, oldest first.
async fn disks(world: &World, person: &Person, sku: &str) -> Vec<Value> {
    let page = world.api.get(&person.access, "/v1/charges?item=disk&limit=100").await.is(200);
    let mut lines: Vec<Value> =
        page["items"].as_array().unwrap().iter().filter(|line| line["offer_id"] == sku).cloned().collect();
    lines.reverse();
    lines
}

fn micros(amount: &Value) -> i64 {
    amount["amount"].as_str().unwrap().parse::<Micros>().unwrap().get()
}

fn instant(text: &Value) -> i64 {
    text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_microsecond()
}

/// A line that has ended is the floor of its rate over the whole seconds between its two instants.
fn is_exact(line: &Value) {
    let seconds = (instant(&line["ended_at"]) - instant(&line["started_at"])) / 1_000_000;
    assert_eq!(line["seconds"], seconds, "{line}");
    let expected = micros(&line["rate_per_hour"]) * seconds / 3600;
    assert_eq!(micros(&line["amount"]), expected, "{line}");
}

async fn a_disk_costs_from_ready_until_its_deletion_is_accepted_also_while_stopped(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = create(&mut world, &person, 50).await;
    world.pass(1).await;
    let running = world.instance(&person, &id).await;
    assert_eq!(
        (&running["disk"]["size_gb"], &running["disk"]["included_gb"], &running["disk"]["billing"]),
        (&json!(50), &json!(20), &json!("charged")),
        "{running}"
    );
    // 30 GiB at 500 micros, and the card at 900,000.
    assert_eq!(micros(&running["spending"]["per_hour"]), 915_000, "{running}");
    assert_eq!(micros(&world.wallet(&person).await["burn_per_hour"]), 915_000);
    world.pass(3_600).await;
    let spent = world.instance(&person, &id).await;
    let (settled, accrued) = (micros(&spent["spending"]["settled"]), micros(&spent["spending"]["accrued"]));
    assert!((915_000 - 300..=915_000 + 300).contains(&(settled + accrued)), "{spent}");
    let left = spent["spending"]["seconds_left"].as_i64().unwrap();
    assert_eq!(world.wallet(&person).await["seconds_left"].as_i64().unwrap() / 10, left / 10);
    assert!((35_740..=35_750).contains(&left), "10 CNY buy 39,344 s of both: {left}");

    let stopping = world.stop(&person, &id).await;
    let keeps: Vec<(&str, i64, i64)> = stopping["keeps_costing"]
        .as_array()
        .unwrap()
        .iter()
        .map(|kept| {
            (kept["sku"].as_str().unwrap(), kept["size_gb"].as_i64().unwrap(), micros(&kept["per_hour"]))
        })
        .collect();
    assert_eq!(keeps, [("disk", 30, 15_000), ("disk-included", 20, 0)], "{stopping}");
    assert_eq!(stopping["keeps_costing"][0]["ends_with"], format!("DELETE /v1/instances/{id}"));
    assert_eq!(micros(&stopping["price"]["stopped_per_hour"]), 15_000);
    world.pass(1).await;
    world.pass(7_200).await;
    assert_eq!(world.state(&person, &id).await, "stopped");
    let stopped = world.instance(&person, &id).await;
    assert_eq!(micros(&stopped["spending"]["per_hour"]), 15_000, "{stopped}");
    let patched =
        world.api.patch(&person.access, &format!("/v1/instances/{id}"), json!({"label": "x"})).await.is(200);
    assert_eq!(patched["keeps_costing"], stopped["keeps_costing"], "{patched}");

    // The host is away: the acceptance ends it all the same.
    let before = world.now().as_micros();
    world.terminate(&person, &id).await;
    let after = world.now().as_micros();
    world.api.clock.advance_seconds(1_000);
    world.tick().await;
    let line = &disks(&world, &person, "disk").await[0];
    assert!((before..=after).contains(&instant(&line["ended_at"])), "{line}");
    assert!(line["seconds"].as_i64().unwrap() >= 10_800, "{line}");
    assert_eq!((&line["size_gib"], &line["close_reason"]), (&json!(30), &json!("terminated")));
    is_exact(line);
    let included = &disks(&world, &person, "disk-included").await[0];
    assert_eq!((&included["size_gib"], micros(&included["amount"])), (&json!(20), 0));
    is_exact(included);
    let ended = world.instance(&person, &id).await;
    assert_eq!((&ended["keeps_costing"], &ended["disk"]["billing"]), (&json!([]), &json!("ended")));
    let charges = world.api.get(&person.access, "/v1/charges").await.is(200);
    let charged: i64 = charges["items"].as_array().unwrap().iter().map(|line| micros(&line["amount"])).sum();
    assert_eq!(micros(&world.wallet(&person).await["credit"]), 10_000_000 - charged);
    assert_eq!(micros(&ended["spending"]["settled"]), charged);
    let audited = audited(&world).await;
    assert_eq!(audited["segments"], 3, "{audited}");
    assert_eq!(micros(&audited["totals"]["revenue_storage"]), micros(&line["amount"]));
}

async fn a_start_that_never_became_ready_leaves_no_disk_to_charge(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    world.agents[0].scripts = vec![Script::Fail(FailReason::CommandFailed, "exit status 127")];
    let id = create(&mut world, &person, 100).await;
    world.pass(1).await;
    world.pass(5_000).await;
    let failed = world.instance(&person, &id).await;
    assert_eq!(
        (&failed["state"], &failed["disk"]["billing"]),
        (&json!("failed"), &json!("not_yet")),
        "{failed}"
    );
    let page = world.api.get(&person.access, "/v1/charges").await.is(200);
    assert_eq!(page["items"], json!([]));
    assert_eq!(world.wallet(&person).await["credit"]["amount"], "10.00");
}

async fn the_start_gate_counts_the_disk_and_its_size_has_bounds(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    for size in [0, 16_385] {
        let refused = world.try_create(&person, json!({"offer_id": "card-24", "disk_gb": size})).await;
        assert_eq!(refused.fails(422, "invalid_request")["errors"][0]["pointer"], "/disk_gb");
    }
    // 8.182 for the disk and 2.40 are more than 10.00; with 0.90 they are less, and all of it is held.
    let order = json!({"offer_id": "pool-96", "disk_gb": 16_384});
    world.try_create(&person, order).await.fails(402, "balance_too_low");
    create(&mut world, &person, 16_384).await;
    assert_eq!(world.wallet(&person).await["held"]["amount"], "9.082");
}

async fn a_disk_whose_money_ended_is_kept_charged_again_and_in_the_end_goes(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.api.person().await;
    let scopes = ["instances:read", "instances:write", "wallet:read", "wallet:write"];
    let person = Person { access: world.api.key(&person, &scopes).await, ..person };
    let id = create(&mut world, &person, 16_384).await;
    world.pass(1).await;
    world.pass(10).await;
    world.stop(&person, &id).await;
    world.pass(1).await;
    for _ in 0..50 {
        world.pass(100).await;
    }
    let unpaid = world.instance(&person, &id).await;
    assert_eq!(
        (&unpaid["state"], &unpaid["disk"]["billing"]),
        (&json!("stopped"), &json!("unpaid")),
        "{unpaid}"
    );
    let line = disks(&world, &person, "disk").await[0].clone();
    assert_eq!(line["close_reason"], "balance_exhausted", "{line}");
    is_exact(&line);
    let charges = world.api.get(&person.access, "/v1/charges").await.is(200);
    let charged: i64 = charges["items"].as_array().unwrap().iter().map(|line| micros(&line["amount"])).sum();
    let left = micros(&world.wallet(&person).await["credit"]);
    assert_eq!(left, 10_000_000 - charged);
    // A second of the disk is 2,272 micros: less than that is left, and nothing is owed.
    assert!((0..2_273).contains(&left), "{left}");

    let top_up = json!({"amount": {"amount": "20.00", "currency": "CNY"}});
    world.api.post_once(&person.access, "/v1/wallet/topups", "more", top_up).await.is(201);
    world.pass(1).await;
    let again = world.instance(&person, &id).await;
    assert_eq!(again["disk"]["billing"], "charged", "{again}");
    let wallet = world.wallet(&person).await;
    assert_eq!(micros(&wallet["burn_per_hour"]), 8_182_000, "{wallet}");
    for _ in 0..100 {
        world.pass(100).await;
    }
    assert_eq!(world.instance(&person, &id).await["disk"]["billing"], "unpaid");
    let lines = disks(&world, &person, "disk").await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    lines.iter().for_each(is_exact);
    assert!(
        instant(&lines[0]["ended_at"]) < instant(&lines[1]["started_at"]),
        "what nobody paid for is not charged"
    );

    world.pass(6 * 86_400).await;
    assert_eq!(world.state(&person, &id).await, "stopped", "kept for seven days");
    world.pass(2 * 86_400).await;
    world.pass(1).await;
    let gone = world.instance(&person, &id).await;
    assert_eq!(
        (&gone["state"], &gone["reason_code"]),
        (&json!("terminated"), &json!("balance_exhausted")),
        "{gone}"
    );
    assert!(micros(&world.wallet(&person).await["available"]) >= 0);
    audited(&world).await;
}

async fn a_new_price_of_disks_splits_the_line_exactly(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = create(&mut world, &person, 120).await;
    world.pass(1).await;
    world.pass(1_000).await;
    let price = json!({"offer_id": "disk", "price_per_hour": {"amount": "0.0007", "currency": "CNY"}});
    world.api.change_price(&world.operator, price).await.is(201);
    world.pass(2_000).await;
    world.terminate(&person, &id).await;
    world.pass(1).await;
    let lines = disks(&world, &person, "disk").await;
    let rates: Vec<(i64, i64)> = lines
        .iter()
        .map(|line| (micros(&line["rate_per_hour"]), line["price_version"].as_i64().unwrap()))
        .collect();
    assert_eq!(rates, [(50_000, 1), (70_000, 2)], "{lines:?}");
    assert_eq!(lines[0]["ended_at"], lines[1]["started_at"]);
    lines.iter().for_each(is_exact);
    audited(&world).await;
}

async fn a_start_goes_to_the_host_that_has_the_disk(api: Api) {
    let mut world = World::with_host(api, 2).await;
    world.add_host(2, Wiring::BridgedPairs).await;
    let person = world.person().await;
    for size in [50, 20] {
        let id = create(&mut world, &person, size).await;
        world.pass(1).await;
        let host = world.instance(&person, &id).await["pool"]["host_id"].as_str().unwrap().to_owned();
        world.stop(&person, &id).await;
        world.pass(1).await;
        let (admin, start) = (world.operator.access.clone(), format!("/v1/instances/{id}/actions/start"));
        let cordon = format!("/v1/admin/hosts/{host}/cordon");
        world.api.post(&admin, &cordon, json!({})).await.is(200);
        let away = world.api.post_once(&person.access, &start, &format!("away-{size}"), json!({})).await;
        if size > 20 {
            away.fails(409, "no_capacity");
            world.api.post(&admin, &format!("/v1/admin/hosts/{host}/uncordon"), json!({})).await.is(200);
            world.api.post_once(&person.access, &start, "here", json!({})).await.is(202);
            assert_eq!(world.instance(&person, &id).await["pool"]["host_id"], host.as_str());
        } else {
            assert_ne!(
                away.is(202)["pool"]["host_id"],
                host.as_str(),
                "what is free goes where there is room"
            );
        }
        world.pass(1).await;
        assert_eq!(world.state(&person, &id).await, "running");
        world.terminate(&person, &id).await;
        world.pass(1).await;
    }
}
