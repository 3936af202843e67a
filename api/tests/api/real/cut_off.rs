//! L1, L7: the network between control plane and agent is gone; both live on, and so does what runs.

use std::time::Duration;

use serde_json::json;

use super::audit::{Ended, audit};
use super::control_plane::ControlPlane;
use super::customer::pool_of;
use super::eventually;
use super::host::Host;
use super::site::{Site, counted_witness};
use super::wire::Wire;

/// A site whose agent is reached over a wire.
async fn wired() -> (Site, Wire) {
    let control_plane = ControlPlane::on_sqlite().await;
    let wire = Wire::to(&control_plane.url()).await;
    let site = Site::with(control_plane, Host::new(), &wire.url).await;
    site.both_pools_are_free().await;
    (site, wire)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l7_silence_flags_and_touches_nothing_and_ends_by_itself() {
    let (site, wire) = wired().await;
    let customer = &site.customer;
    let command = counted_witness();
    let id = customer.rent(&pool_of(&command.each_ref().map(String::as_str))).await;
    customer.witness(&id).await;
    let before = (site.host.tenant_processes(&id, "tarn-witness"), site.host.brokers(&id));
    // Shorter than what makes a host silent, then longer.
    for (seconds, flagged) in [(5, false), (25, true)] {
        wire.cut();
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        let seen = customer.instance(&id).await;
        assert_eq!(seen["state"], "running", "after {seconds} s: {seen}");
        assert_eq!(seen["unreachable"].is_object(), flagged, "after {seconds} s: {seen}");
        let after = (site.host.tenant_processes(&id, "tarn-witness"), site.host.brokers(&id));
        assert_eq!(after, before, "after {seconds} s");
        let offer = customer.get("/v1/offers/pool-96").await;
        assert_eq!(offer["availability"]["count"], u64::from(!flagged), "nothing is placed there: {offer}");
        wire.mend();
        eventually("the flag to fall", 30, async || {
            customer.instance(&id).await["unreachable"].is_null().then_some(())
        })
        .await;
    }
    assert!(!site.alerts().await.contains(&"host_unreachable".to_owned()));
    assert_eq!(site.host.home_lines(&id, "starts"), 1);
    // What was proven meanwhile counts.
    eventually("the seconds of the silence", 20, async || {
        let page = customer.get("/v1/charges?item=gpu").await;
        (page["items"][0]["seconds"].as_i64()? >= 30).then_some(())
    })
    .await;
    customer.delete(&id).await;
    customer.reaches(&id, "terminated").await;
    audit(&site, &[Ended { customer, id: &id, segments: 1 }]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l1_a_termination_that_cannot_be_told_costs_nothing_and_waits_for_the_agents_proof() {
    let (site, wire) = wired().await;
    let customer = &site.customer;
    let command = counted_witness();
    let id = customer.rent(&pool_of(&command.each_ref().map(String::as_str))).await;
    customer.witness(&id).await;
    wire.cut();
    let ending = customer.delete(&id).await;
    assert_eq!((&ending["state"], &ending["billable"]), (&json!("terminating"), &json!(false)), "{ending}");
    eventually("an operator to be called", 60, async || {
        let alerts = site.alerts().await;
        let called = ["termination_unproven", "host_unreachable"];
        called.iter().all(|kind| alerts.contains(&(*kind).to_owned())).then_some(())
    })
    .await;
    let waiting = customer.instance(&id).await;
    assert_eq!(waiting["state"], "terminating", "{waiting}");
    assert!(!site.host.tenant_processes(&id, "tarn-witness").is_empty(), "the host has not heard");
    let counts = site.control_plane.store.read(|tx| Box::pin(async move { tx.fleet_counts().await }));
    assert_eq!(counts.await.unwrap().gpus_held, 4, "no card is free without proof");
    wire.mend();
    customer.reaches(&id, "terminated").await;
    assert!(site.host.tenant_processes(&id, "tarn-witness").is_empty());
    assert!(!site.host.instance_dir(&id).exists());
    let page = customer.get("/v1/charges?item=gpu").await;
    assert_eq!(page["items"][0]["ended_at"], ending["since"], "billing ends with the request: {page}");
    audit(&site, &[Ended { customer, id: &id, segments: 1 }]).await;
}
