//! Growth and shrinkage of a living pool, chunks made ahead, and what a decode trace wastes.

use std::time::Instant;

use tarn_protocol::broker_wire::DonorFigures;
use tarn_protocol::units::Bytes;

use crate::rig::{Rig, Shape, until};

fn leased(rig: &Rig) -> u64 {
    rig.observer().donors().iter().map(|donor| donor.leased_bytes).sum()
}

#[test]
fn granules_are_made_ahead_of_growth_give_way_to_need_and_go_with_the_last_lease() {
    let rig = Rig::new(&Shape::default());
    let mut holder = rig.spawn("dlopen", &["hold", &Bytes::gib(30).get().to_string()]);
    holder.read_until("waiting");
    let ahead = || rig.donors_used() - leased(&rig);
    until("4 GiB are ready", || ahead() == Bytes::gib(4).get());
    assert_eq!(rig.observer().donors().iter().map(|donor| donor.quarantined_bytes).sum::<u64>(), 0);
    let mut other = rig.spawn("dlopen", &["everything"]);
    other.read_until("waiting");
    assert!(other.number("taken") * 100 >= other.number("free") * 99, "what is ready is nobody's");
    assert_eq!(other.number("bad"), 0);
    other.say("go on");
    other.end();
    holder.ask("check");
    assert_eq!(holder.number("bad"), 0);
    holder.say("free");
    holder.end();
    until("nothing is kept", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}

#[test]
fn a_quota_that_changes_is_seen_at_once_and_takes_no_live_memory() {
    let mut rig = Rig::new(&Shape::default());
    let mut holder = rig.spawn("dlopen", &["hold", &Bytes::gib(40).get().to_string()]);
    holder.read_until("waiting");
    let (free, held) = (holder.number("free"), leased(&rig));
    let observer = rig.observer();
    for (bytes, more) in [(Bytes::gib(1), 2), (Bytes::mib(24_550), 0)] {
        let start = Instant::now();
        rig.resize(bytes);
        until("the page shows it", || {
            observer.donors().iter().all(|donor| donor.capacity_bytes == bytes.get())
        });
        println!("a quota of {bytes} was visible after {:?}", start.elapsed());
        holder.ask("check");
        assert_eq!((holder.number("bad"), leased(&rig)), (0, held), "live memory stays");
        holder.ask("more");
        assert_eq!(holder.number("more"), more, "{bytes} a donor");
    }
    holder.ask("check");
    assert_eq!(holder.number("free"), free);
    // A config of another pool, or none, changes nothing.
    std::fs::write(rig.lib().join("pool.json"), "{").unwrap();
    rig.resize_as_it_is();
    rig.resize(Bytes::mib(24_000));
    until("the next word is understood", || observer.donors()[0].capacity_bytes == Bytes::mib(24_000).get());
    holder.say("free");
    holder.end();
}

/// The broker's successor reads a quota below what is lent: holders keep what they have and get no more, and a killed one's bytes come back.
#[test]
fn a_quota_that_shrank_while_no_broker_was_there_takes_no_live_memory_either() {
    let mut rig = Rig::new(&Shape::default());
    let hold = |rig: &Rig, bytes: Bytes| {
        let mut holder = rig.spawn("dlopen", &["hold", &bytes.to_string()]);
        holder.read_until("waiting");
        holder
    };
    let mut victim = hold(&rig, Bytes::gib(30));
    let of_victim = leased(&rig);
    let mut holder = hold(&rig, Bytes::gib(30));
    let held = leased(&rig);
    assert!(of_victim > Bytes::gib(5).get() && held > of_victim + Bytes::gib(29).get());
    rig.kill_broker();
    rig.rewrite(Bytes::gib(1));
    rig.start_broker(&[]);
    let observer = rig.observer();
    let sums = || {
        let donors = observer.donors();
        let sum = |of: fn(&DonorFigures) -> u64| donors.iter().map(of).sum::<u64>();
        (sum(|donor| donor.leased_bytes), sum(|donor| donor.quarantined_bytes))
    };
    assert_eq!(sums(), (0, held), "all of it is known, and nobody's to lend");
    until("both are recognised", || {
        for one in [&mut victim, &mut holder] {
            one.ask("more");
            assert_eq!(one.number("more"), 2, "nothing new is lent");
        }
        sums() == (held, 0)
    });
    for one in [&mut victim, &mut holder] {
        one.ask("check");
        assert_eq!(one.number("bad"), 0);
    }
    victim.kill();
    until("the dead one's bytes are back", || sums() == (held - of_victim, 0));
    holder.ask("more");
    assert_eq!(holder.number("more"), 2, "use is still above the quota");
    rig.resize(Bytes::mib(24_550));
    until("the quota is seen", || observer.donors()[0].capacity_bytes == Bytes::mib(24_550).get());
    holder.ask("more");
    assert_eq!(holder.number("more"), 0);
    holder.say("free");
    holder.end();
    until("nothing is lent", || sums() == (0, 0));
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
    assert_eq!(rig.log(), "");
}

/// Waste is what stitched blocks map beyond what was asked for, at its worst over the trace.
#[test]
fn a_staggered_decode_trace_wastes_less_than_three_percent() {
    let rig = Rig::new(&Shape::default());
    for seed in ["1", "2"] {
        let mut tenant = rig.spawn_program("hinting", "dlopen", &["decode", seed, "1500"], &[]);
        tenant.end();
        assert!(tenant.number("spilled_most") > Bytes::gib(20).get(), "{:?}", tenant.facts);
        assert!(tenant.number("waste_permille") < 30, "{:?}", tenant.facts);
    }
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}
