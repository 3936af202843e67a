//! Two customers on one host.

use serde_json::Value;

use super::audit::{Ended, audit};
use super::control_plane::ControlPlane;
use super::customer::{Customer, pool_of};
use super::eventually;
use super::site::Site;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_neighbour_can_neither_see_nor_touch_an_instance_of_someone_else() {
    let site = Site::on(ControlPlane::on_sqlite().await).await;
    let (a, b) = (&site.customer, &site.control_plane.customer("neighbour").await);
    let first = a.rent(&pool_of(&["/bin/sleep", "1000"])).await;
    let before = a.instance(&first).await;

    no_route_leads_to(b, &first).await;
    assert_eq!(b.get("/v1/instances?terminated=true").await["items"], serde_json::json!([]));
    assert_eq!(a.instance(&first).await["state"], before["state"]);

    let inside = look_around(&site, &first);
    let second = b.rent(&pool_of(&["/bin/sh", "-c", &inside])).await;
    let path = format!("/v1/instances/{second}/logs");
    let said = eventually("what the neighbour's program found", 20, async || {
        let tail = b.get(&path).await["tail"].as_str()?.to_owned();
        tail.contains("looked").then_some(tail)
    })
    .await;
    assert!(said.contains("own card opened"), "{said}");
    assert!(!said.contains("REACHED"), "{said}");

    for (customer, id) in [(a, &first), (b, &second)] {
        customer.delete(id).await;
        customer.reaches(id, "terminated").await;
    }
    let ended =
        [Ended { customer: a, id: &first, segments: 1 }, Ended { customer: b, id: &second, segments: 1 }];
    audit(&site, &ended).await;
}

/// A script for the neighbour's instance: everything of the first one that it can reach, it names.
fn look_around(site: &Site, first: &str) -> String {
    let (own, state) = (site.host.instance_dir(first), site.host.state_dir());
    let seen = ["", "broker.sock", "home", "log", "lib/pool.json", "ledger.json"].map(|part| {
        let place = own.join(part).display().to_string();
        format!("test -e {place} && echo REACHED {place}; ")
    });
    let read = ["identity.json", "usage.jsonl", "journal/*", "wanted/*", "run/*"].map(|part| {
        let place = state.join(part).display().to_string();
        format!("cat {place} >/dev/null 2>&1 && echo REACHED {place}; ")
    });
    let taken = site.host.live_pools();
    let nodes = site.host.sim.gpus().iter().enumerate().map(|(index, gpu)| {
        let node = site.host.sim.device_node(index).display().to_string();
        let foreign = taken.iter().flatten().any(|card| *card == gpu.uuid);
        let said = if foreign { "REACHED" } else { "own card opened" };
        format!("( : < {node} ) 2>/dev/null && echo {said} {node}; ")
    });
    let look: String = seen.into_iter().chain(read).chain(nodes).collect();
    look + "echo looked; exec sleep 1000"
}

/// Calls every documented route that takes an instance with the id of someone else's: each answers as for an id that is nobody's.
async fn no_route_leads_to(stranger: &Customer, id: &str) {
    let document = stranger.get("/openapi.json").await;
    let mut called = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        // Operators' routes are closed to every customer, whatever the id.
        if !path.contains("{instance_id}") || path.starts_with("/v1/admin/") {
            continue;
        }
        for method in methods.as_object().unwrap().keys() {
            let mut answers = Vec::new();
            for id in [id, "ins_01jf3z6v5w9x8y7z6a5b4c3d2e"] {
                let call = path.replace("{instance_id}", id);
                let call =
                    if call.ends_with("/wait") { format!("{call}?state=running&timeout=0") } else { call };
                let request = stranger.request(&method.to_uppercase(), &call);
                let request = request.header("idempotency-key", format!("{method}{call}"));
                let body = if method == "patch" {
                    serde_json::json!({"label": "mine"})
                } else {
                    serde_json::json!({})
                };
                let request = if method == "get" { request } else { request.json(&body) };
                answers.push(stranger.send(request).await.fails(404, "not_found"));
            }
            let told = |answer: &Value| (answer["title"].clone(), answer["detail"].clone());
            assert_eq!(told(&answers[0]), told(&answers[1]), "{method} {path}");
            called += 1;
        }
    }
    assert!(called >= 8, "only {called} routes take an instance");
}
