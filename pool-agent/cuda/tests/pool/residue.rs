//! Nobody finds in a chunk what another process left there: not after a free, not after SIGKILL, not in granules that were made ahead.

use tarn_protocol::units::Bytes;
use tarn_sim::Fault;

use crate::rig::{Rig, Shape, Tenant, until};

const COLD: [(&str, &str); 1] = [("TARN_PLACEMENT", "cold")];

fn process(rig: &Rig, env: &[(&str, &str)]) -> Tenant {
    let mut tenant = rig.spawn_with("dlopen", &["residue"], env);
    tenant.read_until("waiting");
    tenant
}

fn leased(rig: &Rig) -> u64 {
    rig.observer().donors().iter().map(|donor| donor.leased_bytes).sum()
}

/// Every free byte of the pool, in blocks and handles; what is found in it.
fn found(tenant: &mut Tenant, how: &str, bytes: Bytes, count: u32) -> u64 {
    for _ in 0..count {
        tenant.ask(&format!("{how} {bytes}"));
    }
    tenant.number("seen")
}

#[test]
fn what_a_killed_process_wrote_is_read_by_nobody() {
    for how in ["take", "handle"] {
        let rig = Rig::new(&Shape { host_tier_bytes: Some(Bytes::gib(4)), ..Shape::default() });
        let mut victim = process(&rig, &COLD);
        assert_eq!(found(&mut victim, how, Bytes::gib(5), 14), 0);
        assert!(leased(&rig) >= Bytes::gib(60).get(), "{}", leased(&rig));
        victim.kill();
        let mut heir = process(&rig, &COLD);
        assert_eq!(found(&mut heir, how, Bytes::gib(5), 14), 0, "{how}");
        assert!(leased(&rig) >= Bytes::gib(60).get());
        heir.say("end");
        heir.end();
        until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
    }
}

/// Granules are made ahead while a first process lives and writes; it frees and dies, and a second one grows out of them.
#[test]
fn granules_made_ahead_hold_nothing_of_whoever_was_there_before() {
    let rig = Rig::new(&Shape::default());
    let granule = Bytes::mib(256);
    let ahead = |rig: &Rig| rig.donors_used().saturating_sub(leased(rig));
    let mut keeper = process(&rig, &COLD);
    assert_eq!(found(&mut keeper, "take", granule, 1), 0);
    let mut writer = process(&rig, &COLD);
    for _ in 0..3 {
        assert_eq!(found(&mut writer, "take", granule, 24), 0);
        until("granules are ready", || ahead(&rig) == Bytes::gib(4).get());
        for _ in 0..24 {
            writer.ask("drop");
        }
    }
    assert_eq!(found(&mut writer, "take", Bytes::gib(8), 1), 0);
    until("granules are ready", || ahead(&rig) == Bytes::gib(4).get());
    writer.kill();
    assert!(ahead(&rig) > 0, "the keeper is there, so they stay");
    let mut heir = process(&rig, &COLD);
    assert_eq!(found(&mut heir, "take", granule, 40), 0);
    assert_eq!(found(&mut keeper, "take", granule, 40), 0);
    for mut one in [heir, keeper] {
        one.say("end");
        one.end();
    }
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}

/// A broker that dies leaves its handles to the driver, and what holders wrote is theirs alone.
#[test]
fn a_successor_of_the_broker_lends_clean_memory_too() {
    let mut rig = Rig::new(&Shape::default());
    let mut holder = process(&rig, &COLD);
    let mut victim = process(&rig, &COLD);
    assert_eq!(
        found(&mut holder, "take", Bytes::gib(5), 3) + found(&mut victim, "take", Bytes::gib(5), 6),
        0
    );
    rig.kill_broker();
    victim.kill();
    rig.start_broker(&[]);
    assert_eq!(found(&mut holder, "take", Bytes::gib(5), 6), 0);
    holder.say("end");
    holder.end();
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}

/// The control of the tests above: a driver that does not scrub would have shown it to them.
#[test]
fn a_driver_that_keeps_what_was_freed_would_be_noticed() {
    let rig = Rig::new(&Shape::default());
    for &gpu in &rig.cards[1..] {
        rig.host.fault(Fault::KeepsFreed { gpu }).unwrap();
    }
    let mut victim = process(&rig, &COLD);
    // The granules with which a process looks whom it reaches are all that was freed so far.
    let probes = found(&mut victim, "take", Bytes::gib(5), 10);
    victim.kill();
    let mut heir = process(&rig, &COLD);
    assert!(found(&mut heir, "take", Bytes::gib(5), 10) >= probes + 10);
}
