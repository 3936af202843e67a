//! Handles that no card has room for: what they refuse, what they leave behind when a step fails, and what happens around them.

use std::time::Instant;

use tarn_protocol::units::Bytes;

use crate::rig::{Rig, Shape, Tenant, until};

fn all_given_back(rig: &Rig) {
    let observer = rig.observer();
    until("nothing is leased", || {
        observer.donors().iter().all(|donor| donor.leased_bytes + donor.quarantined_bytes == 0)
    });
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}

fn spreading(rig: &Rig, threads: u32, rounds: u32, bytes: Bytes) -> Tenant {
    let story = ["spread", &threads.to_string(), &rounds.to_string(), &bytes.to_string()];
    let mut tenant = rig.spawn("dlopen", &story);
    tenant.read_until("started=1");
    tenant
}

/// XLA takes all of its memory as one handle, which no card has room for.
#[test]
fn a_handle_that_no_card_has_room_for_lies_on_several_and_is_mapped_as_one() {
    let rig = Rig::new(&Shape::default());
    let mut tenant = rig.spawn("dlopen", &["compound", &Bytes::gib(72).to_string()]);
    tenant.read_until("waiting");
    let leased: u64 = rig.observer().donors().iter().map(|donor| donor.leased_bytes).sum();
    assert!(leased >= Bytes::gib(48).get() && rig.used(rig.cards[0]) > Bytes::gib(20).get());
    tenant.say("go on");
    tenant.end();
    assert_eq!(tenant.number("compound"), 1);
    until("everything is given back", || rig.cards.iter().all(|&card| rig.used(card) == 0));
    let mut victim = rig.spawn("dlopen", &["compound", &Bytes::gib(72).to_string()]);
    victim.read_until("waiting");
    victim.kill();
    until("a killed holder leaves nothing", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}

#[test]
fn refusals_around_a_large_handle_leave_everything_as_it_was() {
    for shape in [Shape::default(), Shape { host_tier_bytes: Some(Bytes::gib(64)), ..Shape::default() }] {
        let rig = Rig::new(&shape);
        rig.spawn("linked", &["compound_edges"]).end();
        all_given_back(&rig);
    }
}

/// The third donor's node is gone: its part cannot be imported, after the primary and two donors have given theirs.
#[test]
fn a_large_handle_of_which_a_part_cannot_be_had_leaves_nothing_behind() {
    let rig = Rig::new(&Shape::default());
    let mut tenant = rig.spawn("dlopen", &["attempt", &Bytes::gib(90).to_string()]);
    tenant.read_until("waiting");
    let masked = rig.host.device_node(rig.cards[3]);
    std::fs::rename(&masked, masked.with_extension("away")).unwrap();
    tenant.ask("go");
    assert_eq!(tenant.number("attempt"), 101, "{:?}", tenant.facts);
    assert!(rig.log().contains("cannot be imported"), "{}", rig.log());
    let observer = rig.observer();
    until("nothing is leased", || observer.donors().iter().all(|donor| donor.leased_bytes == 0));
    // The card without a node does not say what is in use on it, to the broker neither: its part alone waits for that.
    let waiting = observer.donors().iter().map(|donor| donor.quarantined_bytes).collect::<Vec<_>>();
    assert_eq!(waiting[..2], [0, 0]);
    assert_eq!(tenant.number("lost"), waiting[2]);
    std::fs::rename(masked.with_extension("away"), &masked).unwrap();
    tenant.ask("go");
    assert_eq!(tenant.number("attempt"), 0, "{:?}", tenant.facts);
    tenant.ask("go");
    assert_eq!((tenant.number("attempt"), tenant.number("lost")), (0, 0), "{:?}", tenant.facts);
    tenant.say("end");
    tenant.end();
    all_given_back(&rig);
}

/// Two tenants with threads want more than there is, so steps fail at every place; whoever is served is served whole.
#[test]
fn crowds_that_want_too_many_large_handles_are_served_or_refused_whole() {
    let rig = Rig::new(&Shape::default());
    let mut tenants = [spreading(&rig, 4, 25, Bytes::gib(26)), spreading(&rig, 3, 25, Bytes::gib(40))];
    for tenant in &mut tenants {
        tenant.end();
        assert!(tenant.number("made") > 0, "{:?}", tenant.facts);
    }
    assert!(tenants.iter().any(|tenant| tenant.number("oom") > 0));
    all_given_back(&rig);
}

#[test]
fn a_broker_that_dies_at_any_step_of_a_large_handle_costs_nothing_but_that_handle() {
    let mut rig = Rig::new(&Shape::default());
    let mut tenants = [spreading(&rig, 3, 400, Bytes::gib(30)), spreading(&rig, 2, 400, Bytes::gib(50))];
    for round in 0..6 {
        let start = Instant::now();
        until("time is up", || start.elapsed().as_millis() > 60 + 37 * round);
        rig.kill_broker();
        if round == 3 {
            tenants[1].kill();
        }
        rig.start_broker(&[]);
    }
    tenants[0].end();
    assert!(tenants[0].number("made") > 0, "{:?}", tenants[0].facts);
    all_given_back(&rig);
}
