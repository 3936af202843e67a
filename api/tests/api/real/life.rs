//! A whole life, nothing going wrong.

use std::time::Duration;

use super::audit::{Ended, audit};
use super::control_plane::ControlPlane;
use super::customer::pool_of;
use super::eventually;
use super::site::{Site, counted_witness};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b9_a_pool_lives_twice_and_is_billed_twice_on_sqlite() {
    lives_twice(ControlPlane::on_sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b9_a_pool_lives_twice_and_is_billed_twice_on_postgres() {
    lives_twice(ControlPlane::on_postgres().await).await;
}

async fn lives_twice(control_plane: ControlPlane) {
    let site = Site::on(control_plane).await;
    let customer = &site.customer;
    let command = counted_witness();
    let id = customer.rent(&pool_of(&command.each_ref().map(String::as_str))).await;

    let seen = customer.witness(&id).await;
    assert_eq!((seen["devices"].as_u64(), seen["mismatches"].as_u64()), (Some(1), Some(0)), "{seen}");
    assert!(seen["total_bytes"].as_u64().unwrap() >= 95 << 30, "{seen}");
    let path = format!("/v1/instances/{id}/residency");
    eventually("bytes on all four cards", 20, async || {
        let residency = customer.get(&path).await;
        let cards = residency["cards"].as_array()?.iter();
        let filled = cards.filter(|card| card["used_bytes"].as_u64().unwrap() > 500 << 20).count();
        (filled == 4).then_some(())
    })
    .await;
    eventually("a second to be billed", 20, async || {
        let page = customer.get("/v1/charges?item=gpu").await;
        (page["items"][0]["seconds"].as_i64()? > 0).then_some(())
    })
    .await;

    let stopping = customer.stop(&id).await;
    assert_eq!(stopping["billable"], false, "{stopping}");
    customer.reaches(&id, "stopped").await;
    site.both_pools_are_free().await;
    assert_eq!(site.host.used_at_rest(), vec![0; 8]);
    assert_eq!(customer.instance(&id).await["reason_code"], "user_request");

    customer.start(&id).await;
    customer.reaches(&id, "running").await;
    eventually("a second start", 20, async || (site.host.home_lines(&id, "starts") == 2).then_some(())).await;
    // Long enough to owe something again.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    customer.delete(&id).await;
    customer.reaches(&id, "terminated").await;
    assert!(!site.host.instance_dir(&id).exists());
    audit(&site, &[Ended { customer, id: &id, segments: 2 }]).await;
}
