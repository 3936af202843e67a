//! The broker dies by SIGKILL under a running instance.

use super::audit::{Ended, audit};
use super::control_plane::ControlPlane;
use super::customer::pool_of;
use super::eventually;
use super::host::artefact;
use super::processes;
use super::site::Site;

/// Memory that is mapped stays, and the program never notices. While no broker serves it the instance is degraded and free of
/// charge; once one does, it runs and is billed again, in a segment of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn m18_a_broker_that_dies_takes_no_memory_with_it_and_its_absence_is_free() {
    let site = Site::on(ControlPlane::on_sqlite().await).await;
    let customer = &site.customer;
    let witness = artefact("tarn-witness");
    let fill = ["--fill-percent", "8", "--block-gib", "2", "--json", "--hold", "--loop-seconds", "12"];
    let id = customer.rent(&pool_of(&[&[witness.to_str().unwrap()][..], &fill].concat())).await;
    eventually("memory on the donors", 30, async || {
        (site.host.used().iter().filter(|bytes| **bytes > 500 << 20).count() == 4).then_some(())
    })
    .await;
    let tenant = site.host.tenant_processes(&id, "tarn-witness");

    // Each new one dies too, until the loss has been told.
    eventually("the instance to be degraded", 30, async || {
        site.host.brokers(&id).into_iter().for_each(processes::kill);
        (customer.instance(&id).await["state"] == "degraded").then_some(())
    })
    .await;
    let degraded = customer.instance(&id).await;
    assert!(degraded["billable"] == false || degraded["state"] == "running", "{degraded}");
    // The last kill may have come after the news of the one before: the next broker is awaited, not assumed.
    eventually("one broker that stays", 30, async || (site.host.brokers(&id).len() == 1).then_some(())).await;
    customer.reaches(&id, "running").await;

    let seen = customer.witness(&id).await;
    assert_eq!(seen["mismatches"], 0, "{seen}");
    assert_eq!(site.host.tenant_processes(&id, "tarn-witness"), tenant);
    customer.delete(&id).await;
    customer.reaches(&id, "terminated").await;
    let segments = ran(&site, &id).await;
    assert!(segments >= 2, "never free of charge");
    audit(&site, &[Ended { customer, id: &id, segments }]).await;
}

/// How often the instance came to run, as its own history tells.
async fn ran(site: &Site, id: &str) -> usize {
    let page = site.customer.get(&format!("/v1/instances/{id}/events?limit=100")).await;
    let events = page["items"].as_array().unwrap();
    events.iter().filter(|event| event["kind"] == "instance.running").count()
}
