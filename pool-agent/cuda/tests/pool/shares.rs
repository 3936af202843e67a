//! V3: memory that one process of a pool shares with another: native, straddling and spilled; across pools never.

use tarn_protocol::pool_config::Placement;
use tarn_protocol::units::Bytes;

use crate::rig::{Rig, Shape, Tenant, until};

fn process(rig: &Rig, role: &str) -> Tenant {
    let mut process = rig.spawn_program("sharing", "dlopen", &[role], &[]);
    process.read_until("waiting");
    process
}

/// The owner takes a block and gives its handle.
fn handle(owner: &mut Tenant, bytes: Bytes) -> String {
    let index = owner.number("count");
    owner.ask(&format!("take {bytes}"));
    owner.ask(&format!("handle {index}"));
    assert_eq!(owner.number("got"), 0);
    owner.facts["handle"].clone()
}

fn held(rig: &Rig) -> Vec<u64> {
    let mut held: Vec<u64> =
        rig.observer().processes().iter().map(|held| held.local_bytes + held.donor_bytes).collect();
    held.sort_unstable();
    held
}

/// Two processes see the same bytes through one range.
fn shared(rig: &Rig, bytes: Bytes) -> (Tenant, Tenant) {
    let (mut owner, mut opener) = (process(rig, "owner"), process(rig, "opener"));
    let handle = handle(&mut owner, bytes);
    opener.ask(&format!("open {handle}"));
    assert_eq!((opener.number("open"), opener.number("bytes")), (0, bytes.get()));
    opener.ask("check");
    assert_eq!(opener.number("bad"), 0);
    opener.ask("write");
    owner.ask("check 0");
    assert_eq!(owner.number("bad"), 0);
    (owner, opener)
}

fn ends(rig: &Rig, processes: [Tenant; 2]) {
    for mut process in processes {
        process.say("end");
        process.end();
    }
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}

#[test]
fn v3_a_native_block_is_shared_by_the_drivers_own_handle() {
    let rig = Rig::new(&Shape::default());
    let (owner, mut opener) = shared(&rig, Bytes::gib(1));
    opener.ask("close");
    ends(&rig, [owner, opener]);
}

#[test]
fn v3_a_block_over_four_cards_is_opened_as_one_range_and_charged_to_its_owner_alone() {
    for placement in [Placement::LocalFirst, Placement::Interleave] {
        let shape = Shape { donor_bytes: Bytes::mib(24_320), ..Shape::placed(placement, Bytes::mib(256)) };
        let rig = Rig::new(&shape);
        let bytes = Bytes::gib(70);
        let (mut owner, mut opener) = shared(&rig, bytes);
        assert_eq!(held(&rig), [0, bytes.get()], "the owner pays");
        owner.ask("handle 0");
        opener.ask(&format!("again {}", owner.facts["handle"]));
        opener.ask("close");
        owner.ask("free 0");
        until("nothing is held", || held(&rig) == [0, 0] && rig.donors_used() == 0);
        ends(&rig, [owner, opener]);
        assert_eq!(rig.log().lines().count(), 1, "only the free of an opened range: {}", rig.log());
    }
}

/// What happens to an open range when its owner gives the block up, by a free or by its death.
fn outlives(ending: impl FnOnce(&mut Tenant)) {
    let rig = Rig::new(&Shape::default());
    let mut owner = process(&rig, "owner");
    let mut opener = process(&rig, "opener");
    let handle = handle(&mut owner, Bytes::gib(40));
    opener.ask(&format!("open {handle}"));
    let observer = rig.observer();
    let leased: u64 = observer.donors().iter().map(|donor| donor.leased_bytes).sum();
    ending(&mut owner);
    until("the lease is back, the bytes are not", || {
        observer.donors().iter().map(|donor| donor.quarantined_bytes).sum::<u64>() == leased
    });
    opener.ask("check");
    assert_eq!(opener.number("bad"), 0);
    let mut late = process(&rig, "opener");
    late.ask(&format!("open {handle}"));
    assert_eq!(late.number("open"), 400, "the offer went with the block");
    drop(owner);
    opener.ask("close");
    until("the donors are free again", || {
        observer.donors().iter().all(|donor| donor.quarantined_bytes == 0 && donor.leased_bytes == 0)
    });
    ends(&rig, [opener, late]);
}

#[test]
fn v3_an_open_range_outlives_a_free_by_its_owner() {
    outlives(|owner| owner.ask("free 0"));
}

#[test]
fn v3_an_open_range_outlives_the_death_of_its_owner() {
    outlives(Tenant::kill);
}

#[test]
fn v3_a_handle_of_another_pool_opens_nothing() {
    let (rig, other) = (Rig::new(&Shape::default()), Rig::new(&Shape { lease: 3, ..Shape::default() }));
    let mut owner = process(&rig, "owner");
    let handle = handle(&mut owner, Bytes::gib(40));
    let mut stranger = process(&other, "opener");
    stranger.ask(&format!("open {handle}"));
    assert_eq!(stranger.number("open"), 400);
    assert!(other.log().contains("another pool"), "{}", other.log());
}

#[test]
fn v6_two_hundred_blocks_are_opened_by_one_process() {
    let rig = Rig::new(&Shape::default());
    let (mut owner, mut opener) = (process(&rig, "owner"), process(&rig, "opener"));
    handle(&mut owner, Bytes::mib(23_000));
    for _ in 0..200 {
        let handle = handle(&mut owner, Bytes::mib(96));
        opener.ask(&format!("keep {handle}"));
    }
    assert_eq!(opener.number("kept"), 200);
    opener.ask("drop");
    assert_eq!(opener.number("dropped"), 200);
    ends(&rig, [owner, opener]);
    assert_eq!(rig.log(), "");
}

#[test]
fn a_spilled_handle_is_exported_to_another_process_and_charged_once() {
    let rig = Rig::new(&Shape::default());
    let mut exporter = rig.spawn_program("sharing", "dlopen", &["exporter"], &[]);
    exporter.read_until("waiting");
    assert_eq!(held(&rig).iter().sum::<u64>(), Bytes::gib(30).get());
    exporter.ask("release");
    let observer = rig.observer();
    let quarantined = || observer.donors().iter().map(|donor| donor.quarantined_bytes).sum::<u64>();
    until("the importer keeps the bytes, nobody pays", || quarantined() == Bytes::gib(1).get());
    exporter.say("end");
    exporter.end();
    assert_eq!(exporter.number("child"), 0);
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}
