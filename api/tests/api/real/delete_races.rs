//! DELETE at any moment of provisioning.

use std::time::Duration;

use super::audit::{Ended, audit};
use super::control_plane::ControlPlane;
use super::customer::{Customer, pool_of};
use super::site::{Site, counted_witness};

/// Two customers side by side, each deletes at moments of its own: from at once to long after it runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn l2_an_instance_deleted_at_any_moment_ends_and_frees_its_cards() {
    let site = Site::on(ControlPlane::on_sqlite().await).await;
    let other = site.control_plane.customer("other").await;
    let (mine, theirs) = tokio::join!(
        delete_after(&site.customer, [0, 20, 60, 120, 250, 400, 600]),
        delete_after(&other, [10, 40, 90, 180, 320, 500, 800]),
    );
    let lives =
        mine.iter().map(|life| (&site.customer, life)).chain(theirs.iter().map(|life| (&other, life)));
    let ended: Vec<Ended<'_>> =
        lives.map(|(customer, (id, segments))| Ended { customer, id, segments: *segments }).collect();
    audit(&site, &ended).await;
}

/// Creates and deletes; gives each id and how often it ran.
async fn delete_after(customer: &Customer, millis: [u64; 7]) -> Vec<(String, usize)> {
    let command = counted_witness();
    let order = pool_of(&command.each_ref().map(String::as_str));
    let mut lives = Vec::new();
    for wait in millis {
        let made = customer.create(&order).await.is(201);
        let id = made["id"].as_str().unwrap().to_owned();
        tokio::time::sleep(Duration::from_millis(wait)).await;
        customer.delete(&id).await;
        customer.reaches(&id, "terminated").await;
        let page = customer.get(&format!("/v1/instances/{id}/events?limit=100")).await;
        let ran =
            page["items"].as_array().unwrap().iter().filter(|event| event["kind"] == "instance.running");
        lives.push((id, ran.count()));
    }
    lives
}
