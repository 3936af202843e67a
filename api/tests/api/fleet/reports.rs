//! Revenue, unbilled time and the evidence of each second, of lives with trouble in them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tarn_api::http::instant::Instant;
use tarn_billing::money::Micros;
use tarn_protocol::control::Phase;
use tarn_protocol::ids::InstanceId;
use tarn_protocol::units::Timestamp;

use super::world::World;
use crate::harness::{Api, Person};

on_both! {
    revenue_is_the_sum_of_every_charge;
    leased_time_is_billed_or_has_a_reason;
    every_second_has_its_evidence_and_its_payment;
    a_customer_sees_the_evidence_and_nothing_of_the_host;
}

fn micros(amount: &Value) -> i64 {
    amount["amount"].as_str().unwrap().parse::<Micros>().unwrap().get()
}

fn rfc(at: Timestamp) -> String {
    serde_json::to_value(Instant(at)).unwrap().as_str().unwrap().to_owned()
}

fn at(value: &Value) -> Timestamp {
    serde_json::from_value::<Instant>(value.clone()).unwrap().0
}

async fn revenue_is_the_sum_of_every_charge(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let people = [world.person().await, world.person().await];
    for (person, offer) in people.iter().zip(["pool-96", "card-24"]) {
        world.create(person, offer).await;
    }
    world.create(&people[0], "card-24").await;
    world.pass(1).await;
    for seconds in [7, 31, 113] {
        world.pass(seconds).await;
    }
    world.api.clock.advance_seconds(1);
    let path = "/v1/admin/reports/revenue";
    let report = world.api.get(&world.operator.access, path).await.is(200);
    let mut charged: BTreeMap<String, i64> = BTreeMap::new();
    for person in &people {
        for charge in world.charges(person).await {
            *charged.entry(charge["offer_id"].as_str().unwrap().to_owned()).or_default() +=
                micros(&charge["amount"]);
        }
    }
    assert!(charged.len() == 2 && charged.values().all(|amount| *amount > 0), "{charged:?}");
    let items = report["items"].as_array().unwrap();
    let told: BTreeMap<String, i64> = items
        .iter()
        .map(|item| (item["offer_id"].as_str().unwrap().to_owned(), micros(&item["net"])))
        .collect();
    assert_eq!(told, charged);
    assert!(
        items.iter().all(|item| item["model"].as_str().is_some_and(|model| model.contains("4090"))),
        "{report}"
    );
    assert_eq!(micros(&report["total"]["net"]), charged.values().sum::<i64>());
    assert_eq!(report["total"]["of_credit"], report["total"]["net"], "all of it was trial credit");

    let first = world.api.get(&world.operator.access, &format!("{path}?limit=1")).await.is(200);
    let next = format!("{path}?limit=1&cursor={}", first["next_cursor"].as_str().unwrap());
    let second = world.api.get(&world.operator.access, &next).await.is(200);
    assert_eq!(json!([first["items"][0], second["items"][0]]), report["items"]);
    let table = world.api.get(&world.operator.access, &format!("{path}?format=csv")).await.is(200);
    let mut reader = csv::Reader::from_reader(table.as_str().unwrap().as_bytes());
    let lines: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[2][5], report["total"]["net"]["amount"]);
    // A period before any of it earned nothing.
    let before = format!("{path}?to={}", rfc(crate::harness::START));
    let nothing = world.api.get(&world.operator.access, &before).await.is(200);
    assert_eq!((micros(&nothing["total"]["net"]), &nothing["items"]), (0, &json!([])));
}

async fn unbilled(world: &World) -> Value {
    let report =
        world.api.get(&world.operator.access, "/v1/admin/reports/unbilled-time?limit=100").await.is(200);
    let sum = |time: &Value| {
        let unbilled =
            time["unbilled_ms"].as_object().unwrap().values().map(|millis| millis.as_i64().unwrap());
        time["billed_ms"].as_i64().unwrap() + unbilled.sum::<i64>()
    };
    assert_eq!(report["total"]["leased_ms"], sum(&report["total"]), "{report}");
    let mut leased = 0;
    for item in report["items"].as_array().unwrap() {
        assert_eq!(item["leased_ms"], sum(item), "{item}");
        leased += item["leased_ms"].as_i64().unwrap();
    }
    assert_eq!(report["total"]["leased_ms"], leased);
    report
}

async fn leased_time_is_billed_or_has_a_reason(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    // Requested for four seconds before the host hears of it.
    world.api.clock.advance_seconds(4);
    world.pass(1).await;
    world.pass(60).await;
    // A donor is lost for twenty seconds, and comes back.
    world.agents[0].set_phase(&id, degraded());
    world.pass(20).await;
    let ready = Phase::Running { ready_mono_ms: world.agents[0].mono(world.now()) };
    world.agents[0].set_phase(&id, ready);
    world.pass(1).await;
    world.pass(60).await;
    // Stopped; the host takes thirty seconds to say so.
    world.stop(&person, &id).await;
    world.api.clock.advance_seconds(30);
    world.round().await;
    assert_eq!(world.state(&person, &id).await, "stopped");
    world.api.clock.advance_seconds(3);
    let report = unbilled(&world).await;
    let time = &report["items"][0];
    assert_eq!((&time["instance_id"], &time["cards"], &report["leases"]), (&json!(id), &json!(4), &json!(1)));
    let ms = |reason: &str| time["unbilled_ms"][reason].as_i64().unwrap_or(0);
    let about = |millis: i64, seconds: i64| (millis - seconds * 1000).abs() <= 1_100;
    assert!(about(ms("starting"), 5), "{time}");
    assert!(about(ms("degraded_by_us"), 20 + 1), "{time}");
    assert!(about(ms("stop_latency"), 30), "{time}");
    assert_eq!(["host_fault", "operator", "pending", "unpaid"].map(ms), [0; 4], "{time}");
    let seconds: i64 =
        world.charges(&person).await.iter().map(|charge| charge["seconds"].as_i64().unwrap()).sum();
    assert_eq!(time["billed_ms"], seconds * 1000, "what was charged, to the second");
    world.audit().await;

    // A drain is the operator's.
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    world.pass(30).await;
    let drain = format!("/v1/admin/hosts/{}/drain", world.agents[0].host_id);
    world.api.post(&world.operator.access, &drain, json!({})).await.is(202);
    world.api.clock.advance_seconds(10);
    world.round().await;
    let report = unbilled(&world).await;
    let items = report["items"].as_array().unwrap();
    let drained = items.iter().find(|item| item["instance_id"] == *id.as_str()).unwrap();
    assert!(about(drained["unbilled_ms"]["operator"].as_i64().unwrap(), 10), "{drained}");
    // Halves of the period say together what the whole says.
    let (from, middle, to) = (crate::harness::START, world.now().plus_seconds(-60), world.now());
    let mut parts = Vec::new();
    for (from, to) in [(from, to), (from, middle), (middle, to)] {
        let path = format!("/v1/admin/reports/unbilled-time?from={}&to={}", rfc(from), rfc(to));
        let part = world.api.get(&world.operator.access, &path).await.is(200);
        parts.push(["leased_ms", "billed_ms"].map(|field| part["total"][field].as_i64().unwrap()));
    }
    assert_eq!(parts[0], [parts[1][0] + parts[2][0], parts[1][1] + parts[2][1]]);
}

fn degraded() -> Phase {
    Phase::Degraded { reason: "peer_lost".into(), ready_mono_ms: tarn_protocol::units::MonoMillis::new(1) }
}

async fn pieces(world: &World, credential: &str, path: &str) -> Vec<Value> {
    let (mut pieces, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world.api.get(credential, &format!("{path}?limit=7{cursor}")).await.is(200);
        pieces.extend(page["items"].as_array().unwrap().clone());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return pieces,
        }
    }
}

/// A pool that ran through a price change and a silence of its host, and was stopped.
async fn troubled(world: &mut World) -> (Person, InstanceId) {
    let person = world.person().await;
    let id = world.create(&person, "pool-96").await;
    world.pass(1).await;
    for seconds in [5, 5, 5] {
        world.pass(seconds).await;
    }
    let price = json!({"offer_id": "pool-96", "price_per_hour": {"amount": "3.60", "currency": "CNY"}});
    world.api.change_price(&world.operator.clone(), price).await.is(201);
    for seconds in [5, 5] {
        world.pass(seconds).await;
    }
    world.stop(&person, &id).await;
    world.pass(2).await;
    world.pass(1).await;
    (person, id)
}

async fn every_second_has_its_evidence_and_its_payment(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let (person, id) = troubled(&mut world).await;
    let path = format!("/v1/admin/instances/{id}/evidence");
    let pieces = pieces(&world, &world.operator.access, &path).await;
    for pair in pieces.windows(2) {
        assert_eq!(pair[0]["to"], pair[1]["from"], "no gap and no overlap");
    }
    assert_eq!(pieces[0]["unbilled_reason"], "starting");
    assert_eq!(pieces.last().unwrap()["unbilled_reason"], "stop_latency");
    let charges = world.charges(&person).await;
    assert_eq!(charges.len(), 2, "{charges:?}");
    for charge in &charges {
        let of: Vec<&Value> = pieces
            .iter()
            .filter(|piece| piece["billed"] == true && piece["segment_id"] == charge["id"])
            .collect();
        let millis: i64 = of.iter().map(|piece| piece["milliseconds"].as_i64().unwrap()).sum();
        assert_eq!(millis, charge["seconds"].as_i64().unwrap() * 1000, "{charge}");
        // Every transfer once, and together they are the charge.
        let mut paid: BTreeMap<String, i64> = BTreeMap::new();
        let mut first_ms = 0;
        for piece in of {
            assert_eq!(
                (&piece["price_version"], &piece["rate_per_hour"]),
                (&charge["price_version"], &charge["rate_per_hour"])
            );
            let payments = piece["payments"].as_array().unwrap();
            assert!(!payments.is_empty(), "{piece}");
            for payment in payments {
                let seconds =
                    ["first_second", "end_second"].map(|field| payment[field].as_i64().unwrap() * 1000);
                assert!((seconds[0]..seconds[1]).contains(&first_ms), "{piece}");
                paid.insert(payment["transfer_id"].as_str().unwrap().to_owned(), micros(&payment["amount"]));
            }
            first_ms += piece["milliseconds"].as_i64().unwrap();
            proven_by_one_report(piece, &world);
        }
        assert_eq!(paid.values().sum::<i64>(), micros(&charge["amount"]), "{paid:?}");
    }
    let narrow = format!("{path}?from={}&to={}", rfc(at(&pieces[2]["from"])), rfc(at(&pieces[4]["to"])));
    let some = world.api.get(&world.operator.access, &narrow).await.is(200);
    assert_eq!(some["items"], json!(pieces[2..=4]), "a part says what the whole says");
    let long = format!("{path}?from={}", rfc(world.now().plus_seconds(-25 * 3600)));
    world.api.get(&world.operator.access, &long).await.fails(422, "invalid_request");
}

fn proven_by_one_report(piece: &Value, world: &World) {
    let evidence = piece["evidence"].as_array().unwrap();
    assert_eq!(evidence.len(), 1, "{piece}");
    let proof = &evidence[0];
    assert_eq!(proof["host_id"], world.agents[0].host_id.as_str());
    assert_eq!(proof["boot_id"], world.agents[0].boot_id.as_str());
    assert!(proof["seq"].as_u64().unwrap() > 0);
    let mono = |of: &Value, field: &str| of[field].as_u64().unwrap();
    assert!(mono(proof, "from_mono_ms") <= mono(piece, "from_mono_ms"), "{piece}");
    assert!(mono(proof, "to_mono_ms") >= mono(piece, "to_mono_ms"), "{piece}");
    // The two clocks meet to the millisecond.
    let received = at(&proof["received_at"]).plus_micros(1000);
    assert!(received >= at(&piece["to"]), "evidence comes after what it proves: {piece}");
}

async fn a_customer_sees_the_evidence_and_nothing_of_the_host(api: Api) {
    let mut world = World::with_host(api, 8).await;
    let (person, id) = troubled(&mut world).await;
    let theirs = pieces(&world, &world.operator.access, &format!("/v1/admin/instances/{id}/evidence")).await;
    let own = pieces(&world, &person.access, &format!("/v1/instances/{id}/evidence")).await;
    assert_eq!(own.len(), theirs.len());
    let told = serde_json::to_string(&own).unwrap();
    for secret in [world.agents[0].host_id.as_str(), world.agents[0].boot_id.as_str(), "\"seq\""] {
        assert!(!told.contains(secret), "{secret}");
    }
    let mut redacted = theirs;
    for proof in redacted.iter_mut().flat_map(|piece| piece["evidence"].as_array_mut().unwrap()) {
        for field in ["host_id", "boot_id", "seq"] {
            assert!(proof.as_object_mut().unwrap().remove(field).is_some());
        }
    }
    assert_eq!(own, redacted, "the same but for the host, with the same references");
    let stranger = world.person().await;
    world.api.get(&stranger.access, &format!("/v1/instances/{id}/evidence")).await.fails(404, "not_found");
}
