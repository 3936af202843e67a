//! More customers than cards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use super::audit::{Ended, audit, ledger_adds_up};
use super::control_plane::ControlPlane;
use super::customer::{Customer, pool_of};
use super::site::Site;
use crate::harness::Got;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_s9_of_a_hundred_creates_at_once_exactly_as_many_succeed_as_there_are_cards() {
    let site = Site::on(ControlPlane::on_sqlite().await).await;
    let mut people = Vec::new();
    for number in 0..50 {
        people.push(site.control_plane.customer(&format!("crowd{number}")).await);
    }
    let order = pool_of(&["/bin/sleep", "1000"]);
    let calls = people.iter().chain(&people).map(|person| person.create(&order));
    let answers: Vec<Got> = futures_util::future::join_all(calls).await;
    let mut winners = Vec::new();
    for (person, answer) in people.iter().chain(&people).zip(answers) {
        match answer.status {
            201 => winners.push((person, answer.body["id"].as_str().unwrap().to_owned())),
            _ => has_alternatives(&answer.fails(409, "no_capacity")),
        }
    }
    assert_eq!(winners.len(), 2);
    for (person, id) in &winners {
        person.reaches(id, "running").await;
    }
    assert_disjoint(&site);
    for (person, id) in &winners {
        person.delete(id).await;
        person.reaches(id, "terminated").await;
    }
    let ended: Vec<Ended<'_>> =
        winners.iter().map(|(customer, id)| Ended { customer, id, segments: 1 }).collect();
    audit(&site, &ended).await;
}

/// While something else could be had, the refusal says what.
fn has_alternatives(refusal: &Value) {
    assert!(refusal["alternatives"].is_array(), "{refusal}");
}

#[track_caller]
fn assert_disjoint(site: &Site) -> usize {
    let pools = site.host.live_pools();
    let cards: BTreeSet<&String> = pools.iter().flatten().collect();
    assert_eq!(cards.len(), pools.iter().map(BTreeSet::len).sum::<usize>(), "a card in two pools: {pools:?}");
    pools.len()
}

/// Rounds of create and delete by eight customers for two pools: the loop never sells a third, never loses one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_s7_rounds_of_create_and_delete_never_oversell_and_never_leak() {
    let site = Site::on(ControlPlane::on_sqlite().await).await;
    let over = Arc::new(AtomicBool::new(false));
    let held = Arc::new(AtomicUsize::new(0));
    let mut people = Vec::new();
    for number in 0..8 {
        people.push(site.control_plane.customer(&format!("round{number}")).await);
    }
    let rounds = people.iter().map(|person| {
        let (person, over, held) = (person.clone(), Arc::clone(&over), Arc::clone(&held));
        tokio::spawn(async move { rounds(&person, &over, &held).await })
    });
    let rounds: Vec<_> = rounds.collect();
    for _ in 0..150 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(assert_disjoint(&site) <= 2);
    }
    over.store(true, Ordering::Relaxed);
    let mut lives = Vec::new();
    for (person, round) in people.iter().zip(rounds) {
        lives.extend(round.await.unwrap().into_iter().map(|life| (person, life)));
    }
    assert!(lives.len() >= 8, "only {} lives", lives.len());
    let ended: Vec<Ended<'_>> =
        lives.iter().map(|(customer, (id, segments))| Ended { customer, id, segments: *segments }).collect();
    audit(&site, &ended).await;
    ledger_adds_up(&site).await;
}

/// Gives every id that this customer had and how often it ran.
async fn rounds(person: &Customer, over: &AtomicBool, held: &AtomicUsize) -> Vec<(String, usize)> {
    let order = pool_of(&["/bin/sleep", "1000"]);
    let mut lives = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let answer = person.create(&order).await;
        if answer.status != 201 {
            answer.fails(409, "no_capacity");
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        }
        assert!(held.fetch_add(1, Ordering::SeqCst) < 2, "a third pool was sold");
        let id = answer.body["id"].as_str().unwrap().to_owned();
        if lives.len() % 2 == 0 {
            person.reaches(&id, "running").await;
        }
        // Released on record only after this: counted down before, so that the count never runs ahead.
        held.fetch_sub(1, Ordering::SeqCst);
        person.delete(&id).await;
        person.reaches(&id, "terminated").await;
        let page = person.get(&format!("/v1/instances/{id}/events?limit=100")).await;
        let ran =
            page["items"].as_array().unwrap().iter().filter(|event| event["kind"] == "instance.running");
        lives.push((id, ran.count()));
    }
    lives
}
