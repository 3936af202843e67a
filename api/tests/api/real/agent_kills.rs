//! The agent dies by SIGKILL: under a running instance, on the way up, on the way down.

use super::audit::{Ended, audit};
use super::control_plane::ControlPlane;
use super::customer::pool_of;
use super::eventually;
use super::site::{Site, counted_witness};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m8_an_agent_killed_under_a_running_instance_costs_the_customer_nothing() {
    let mut site = Site::on(ControlPlane::on_sqlite().await).await;
    let command = counted_witness();
    let id = site.customer.rent(&pool_of(&command.each_ref().map(String::as_str))).await;
    site.customer.witness(&id).await;
    let before = (site.host.tenant_processes(&id, "tarn-witness"), site.host.brokers(&id));
    assert!(!before.0.is_empty() && before.1.len() == 1, "{before:?}");
    for _ in 0..2 {
        site.host.kill_agent();
        let billed = seconds(&site, &id).await;
        site.start_agent(&[]);
        eventually("new evidence", 20, async || (seconds(&site, &id).await > billed + 1).then_some(())).await;
    }
    assert_eq!((site.host.tenant_processes(&id, "tarn-witness"), site.host.brokers(&id)), before);
    assert_eq!(site.host.home_lines(&id, "starts"), 1);
    assert_eq!(site.customer.instance(&id).await["state"], "running");
    site.customer.delete(&id).await;
    site.customer.reaches(&id, "terminated").await;
    audit(&site, &[Ended { customer: &site.customer, id: &id, segments: 1 }]).await;
}

async fn seconds(site: &Site, id: &str) -> i64 {
    let page = site.customer.get("/v1/charges?item=gpu").await;
    let charges = page["items"].as_array().unwrap().iter();
    charges
        .filter(|charge| charge["instance_id"] == id)
        .map(|charge| charge["seconds"].as_i64().unwrap())
        .sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_an_agent_killed_on_the_way_up_or_down_starts_once_and_leaves_nothing() {
    let mut site = Site::on(ControlPlane::on_sqlite().await).await;
    let customer = site.customer.clone();
    let command = counted_witness();
    let order = pool_of(&command.each_ref().map(String::as_str));
    let mut ids = Vec::new();
    for point in ["prepare.after_directory", "broker.after_spawn", "launch.after_spawn", "launch.after_gate"]
    {
        site.host.kill_agent();
        site.start_agent(&["--failpoint", point]);
        let made = customer.create(&order).await.is(201);
        let id = made["id"].as_str().unwrap().to_owned();
        site.host.agent_dies().await;
        site.start_agent(&[]);
        customer.reaches(&id, "running").await;
        eventually(point, 20, async || (site.host.home_lines(&id, "starts") > 0).then_some(())).await;
        assert_eq!(site.host.home_lines(&id, "starts"), 1, "{point}");
        assert_eq!(site.host.brokers(&id).len(), 1, "{point}");
        ids.push(end(&mut site, id, "report.after_send").await);
    }
    for point in ["stop.after_signal", "clean.before_broker_stop", "remove.before_directory"] {
        let id = customer.rent(&order).await;
        ids.push(end(&mut site, id, point).await);
    }
    let ended: Vec<Ended<'_>> = ids.iter().map(|id| Ended { customer: &customer, id, segments: 1 }).collect();
    audit(&site, &ended).await;
}

/// Deletes an instance under an agent that dies at `point`, and sees it through.
async fn end(site: &mut Site, id: String, point: &str) -> String {
    site.host.kill_agent();
    site.start_agent(&["--failpoint", point]);
    site.customer.delete(&id).await;
    site.host.agent_dies().await;
    site.start_agent(&[]);
    site.customer.reaches(&id, "terminated").await;
    assert!(!site.host.instance_dir(&id).exists(), "{point}");
    id
}
