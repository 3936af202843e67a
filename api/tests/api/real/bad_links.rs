//! P1, P6: links that the driver calls good and that are not.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tarn_sim::Fault;

use super::audit::{Ended, audit};
use super::control_plane::ControlPlane;
use super::customer::pool_of;
use super::eventually;
use super::host::Host;
use super::site::Site;

/// Every current verdict, once all 56 ordered pairs of the box have one.
async fn verdicts(site: &Site) -> Vec<Value> {
    eventually("a verdict on every pair", 120, async || {
        let links = site.operator.get("/v1/admin/links").await;
        let links = links["items"].as_array()?.clone();
        (links.len() == 56).then_some(links)
    })
    .await
}

/// The newest certificate of each pair that `wanted` takes.
async fn certificates(site: &Site, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
    let page = site.operator.get("/v1/admin/certificates?limit=100").await;
    let current = |found: &&Value| found["superseded_at"].is_null() && wanted(found);
    page["items"].as_array().unwrap().iter().filter(current).cloned().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_behind_a_translating_iommu_the_host_sells_no_pool_over_pcie_and_says_why() {
    let host = Host::changed(Some(("iommu_translating = false", "iommu_translating = true")));
    let control_plane = ControlPlane::on_sqlite().await;
    let url = control_plane.url();
    let site = Site::with(control_plane, host, &url).await;
    let links = verdicts(&site).await;
    let place = |uuid: &Value| site.host.place_of(uuid.as_str().unwrap());
    // Cards of one switch that no bridge joins: the driver calls them peers.
    let over_pcie = |pair: &Value| {
        let (from, to) = (place(&pair["from"]), place(&pair["to"]));
        from / 4 == to / 4 && from / 2 != to / 2
    };
    assert!(links.iter().all(|link| link["passed"] == (link["class"] == "nvlink")), "{links:?}");
    let refused = certificates(&site, over_pcie).await;
    assert_eq!(refused.len(), 16, "{refused:?}");
    for certificate in &refused {
        assert_eq!(certificate["reason"], "p2p_data_mismatch", "{certificate}");
        assert_eq!(certificate["grade"], "d", "{certificate}");
    }
    let offer = site.customer.get("/v1/offers/pool-96").await;
    let reasons = json!({"links_not_certified": 1});
    assert_eq!(
        (&offer["availability"]["count"], &offer["availability"]["reasons"], &offer["pool_size_bytes"]),
        (&json!(0), &reasons, &Value::Null),
        "{offer}"
    );
    let refusal = site.customer.create(&pool_of(&["/bin/sleep", "1000"])).await.fails(409, "no_capacity");
    assert_eq!(refusal["reasons"], reasons, "{refusal}");
    // Its cards are sound one by one.
    let id = site.customer.rent(&json!({"offer_id": "card-24", "command": ["/bin/sleep", "1000"]})).await;
    site.customer.delete(&id).await;
    site.customer.reaches(&id, "terminated").await;
}

/// The capability says yes and the certificates were good; when the pool starts, the driver refuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_a_set_whose_peer_access_fails_at_the_start_is_followed_by_the_next_and_costs_nothing() {
    let site = Site::on(ControlPlane::on_sqlite().await).await;
    let customer = &site.customer;
    let order = pool_of(&["/bin/sleep", "1000"]);
    // Which set comes first on an empty host.
    let tried = customer.rent(&order).await;
    let first = cards(&customer.instance(&tried).await);
    customer.delete(&tried).await;
    customer.reaches(&tried, "terminated").await;
    site.both_pools_are_free().await;
    let places: Vec<usize> = first.iter().map(|uuid| site.host.place_of(uuid)).collect();
    for from in &places {
        for to in places.iter().filter(|to| *to != from) {
            site.host.sim.fault(Fault::P2pEnableFails { from: *from, to: *to }).unwrap();
        }
    }

    let id = customer.create(&order).await.is(201)["id"].as_str().unwrap().to_owned();
    assert_eq!(cards(&customer.instance(&id).await), first, "the set that will fail is tried first");
    customer.reaches(&id, "running").await;
    let running = customer.instance(&id).await;
    assert_eq!(running["generation"], 2, "{running}");
    let second = cards(&running);
    assert!(second.len() == 4 && second.is_disjoint(&first), "{running}");
    let page = customer.get(&format!("/v1/instances/{id}/events?limit=100")).await;
    let reasons: Vec<&Value> =
        page["items"].as_array().unwrap().iter().map(|event| &event["detail"]["reason"]).collect();
    assert!(reasons.contains(&&json!("pool_verify_failed")), "{page}");
    // The link that failed is certified no longer.
    let failed =
        certificates(&site, |found| found["passed"] == false && first.contains(&text(&found["from"]))).await;
    let reasons: Vec<&Value> = failed
        .iter()
        .filter(|found| first.contains(&text(&found["to"])))
        .map(|found| &found["reason"])
        .collect();
    assert_eq!(reasons, [&json!("p2p_enable_failed")], "{failed:?}");
    eventually("a second to be billed", 20, async || {
        let page = customer.get("/v1/charges?item=gpu").await;
        let of_it = page["items"].as_array()?.iter().find(|charge| charge["instance_id"] == *id)?;
        (of_it["seconds"].as_i64()? > 0).then_some(())
    })
    .await;
    customer.delete(&id).await;
    customer.reaches(&id, "terminated").await;
    let charges = customer.get("/v1/charges?item=gpu&limit=100").await;
    let primaries: Vec<&Value> = charges["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|charge| charge["instance_id"] == *id)
        .map(|charge| &charge["primary_gpu_uuid"])
        .collect();
    assert_eq!(primaries, [&running["pool"]["primary_gpu"]], "{charges}");

    // Repaired and looked at again, it is sold again.
    site.host.sim.fault(Fault::Clear).unwrap();
    for certificate in certificates(&site, |found| first.contains(&text(&found["from"]))).await {
        let path = format!("/v1/admin/certificates/{}/rerun", text(&certificate["id"]));
        site.operator.post(&path, json!({})).await.is(202);
    }
    let ended = [&tried, &id].map(|id| Ended { customer, id, segments: 1 });
    audit(&site, &ended).await;
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The cards of an instance's pool.
fn cards(instance: &Value) -> BTreeSet<String> {
    let pool = &instance["pool"];
    let peers = pool["peer_gpus"].as_array().unwrap().iter().map(|peer| text(&peer["uuid"]));
    std::iter::once(text(&pool["primary_gpu"])).chain(peers).collect()
}
