//! The control plane dies by SIGKILL and comes back on the same data.

use std::time::Duration;

use tarn_protocol::ids::InstanceId;
use tarn_provisioner::lifecycle::State;

use super::audit::{Ended, audit};
use super::control_plane::ControlPlane;
use super::customer::{fresh_key, pool_of};
use super::eventually;
use super::site::{Site, counted_witness};

/// One after the other on the same data: right after a create was answered, under a running instance, right after a stop was
/// answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l4_a_control_plane_that_dies_after_its_word_keeps_it() {
    let mut site = Site::on(ControlPlane::apart().await).await;
    let customer = site.customer.clone();
    let command = counted_witness();
    let order = pool_of(&command.each_ref().map(String::as_str));

    let made = customer.create(&order).await.is(201);
    site.control_plane.kill();
    let id = made["id"].as_str().unwrap().to_owned();
    site.control_plane.start_again().await;
    customer.at_last(&id, "running").await;
    eventually("the start", 20, async || (site.host.home_lines(&id, "starts") == 1).then_some(())).await;
    let tenant = site.host.tenant_processes(&id, "tarn-witness");

    site.control_plane.kill();
    // What is proven meanwhile is spooled by the agent.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(site.host.tenant_processes(&id, "tarn-witness"), tenant, "a lost control plane stops nothing");
    site.control_plane.start_again().await;
    eventually("the spooled seconds", 30, async || {
        let page = customer.get("/v1/charges?item=gpu").await;
        (page["items"][0]["seconds"].as_i64()? >= 4).then_some(())
    })
    .await;
    assert_eq!(customer.instance(&id).await["state"], "running");

    let accepted = customer.stop(&id).await;
    site.control_plane.kill();
    site.control_plane.start_again().await;
    customer.at_last(&id, "stopped").await;
    assert_eq!(site.host.home_lines(&id, "starts"), 1);
    assert_eq!(site.host.tenant_processes(&id, "tarn-witness"), Vec::<u32>::new());
    let page = customer.get("/v1/charges?item=gpu").await;
    assert_eq!(
        page["items"][0]["ended_at"], accepted["since"],
        "billing ends when the stop is accepted: {page}"
    );
    customer.delete(&id).await;
    customer.reaches(&id, "terminated").await;
    audit(&site, &[Ended { customer: &customer, id: &id, segments: 1 }]).await;
}

/// L4: the agent has acted on what it was told, and the process that hears so dies before its commit, as often as it is armed. What was
/// wanted was written before the agent heard of it, so the next process takes up what runs, or ends what nobody wants any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l4_what_the_agent_did_before_a_report_was_committed_is_adopted_or_ended_within_a_minute() {
    let mut site = Site::on(ControlPlane::apart().await).await;
    let customer = site.customer.clone();
    let command = counted_witness();
    let made = customer.create(&pool_of(&command.each_ref().map(String::as_str))).await.is(201);
    let id = made["id"].as_str().unwrap().to_owned();
    site.control_plane.kill();
    // Each life serves what is wanted and dies of the first report; one of them after the agent has acted.
    let running = async |site: &Site| (site.host.home_lines(&id, "starts") > 0).then_some(());
    for life in 0.. {
        assert!(life < 60, "the agent never heard of it");
        lives_until_a_report(&mut site).await;
        if running(&site).await.is_some() {
            break;
        }
    }
    lives_until_a_report(&mut site).await;
    assert_ne!(recorded(&site, &id).await, State::Running, "no report that shows it was committed");
    let tenant = site.host.tenant_processes(&id, "tarn-witness");
    assert!(!tenant.is_empty());
    site.control_plane.start_again().await;
    // Waits for less than a minute.
    customer.at_last(&id, "running").await;
    assert_eq!(site.host.tenant_processes(&id, "tarn-witness"), tenant, "adopted, not started again");
    assert_eq!(site.host.home_lines(&id, "starts"), 1);

    // The other way round: the agent has ended it and nobody could write that down.
    customer.delete(&id).await;
    site.control_plane.kill();
    for life in 0.. {
        assert!(life < 60, "the agent never heard of its end");
        lives_until_a_report(&mut site).await;
        if !site.host.instance_dir(&id).exists() {
            break;
        }
    }
    assert_eq!(
        recorded(&site, &id).await,
        State::Terminating,
        "no report that shows its absence was committed"
    );
    site.control_plane.start_again().await;
    customer.at_last(&id, "terminated").await;
    audit(&site, &[Ended { customer: &customer, id: &id, segments: 1 }]).await;
}

/// A process that dies of the first report, just before it would commit what it says.
async fn lives_until_a_report(site: &mut Site) {
    site.control_plane.claims_expire().await;
    site.control_plane.begin_again(&["--failpoint", "report.before_commit"]);
    site.control_plane.dies("a report").await;
}

/// What the data says of an instance while nobody serves it.
async fn recorded(site: &Site, id: &str) -> State {
    let id: InstanceId = id.parse().unwrap();
    let row = site.control_plane.store.read(move |tx| {
        let id = id.clone();
        Box::pin(async move { tx.instance_of_any_tenant(&id).await })
    });
    row.await.unwrap().unwrap().state
}

/// The answer is lost, whether or not the work was done: the same key again gives one instance.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l14_a_create_cut_short_at_any_moment_and_sent_again_makes_one_instance() {
    let mut site = Site::on(ControlPlane::apart().await).await;
    let customer = site.customer.clone();
    let mut ids = Vec::new();
    for millis in [0, 3, 6, 10, 20] {
        let key = fresh_key();
        let first = customer.create_request(&key, &pool_of(&["/bin/sleep", "1000"]));
        let sending = tokio::spawn({
            let customer = customer.clone();
            async move { customer.try_send(first).await }
        });
        tokio::time::sleep(Duration::from_millis(millis)).await;
        site.control_plane.kill();
        let answered = sending.await.unwrap();
        site.control_plane.start_again().await;
        let again = customer.create_request(&key, &pool_of(&["/bin/sleep", "1000"]));
        let made = customer.send(again).await.is(201);
        let id = made["id"].as_str().unwrap().to_owned();
        assert!(answered.is_none_or(|first| first.body["id"] == made["id"]), "{millis} ms");
        let listed = customer.get("/v1/instances").await;
        assert_eq!(listed["items"].as_array().unwrap().len(), 1, "{millis} ms: {listed}");
        customer.delete(&id).await;
        customer.at_last(&id, "terminated").await;
        ids.push(id);
    }
    for id in &ids {
        let page = customer.get(&format!("/v1/instances/{id}/events?limit=100")).await;
        let events = page["items"].as_array().unwrap();
        let segments = events.iter().filter(|event| event["kind"] == "instance.running").count();
        audit(&site, &[Ended { customer: &customer, id, segments }]).await;
    }
}
