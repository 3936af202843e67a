//! V16: a kernel reaches every byte of a spilled range, wherever it lies, because access was granted when it was mapped.

use crate::rig::{PTX, Rig, Shape, until};

/// The pool's cards are one device, so "all devices of the tenant" is the primary: from every context, thread and process on it.
fn reach(shape: &Shape) {
    let rig = Rig::new(shape);
    let mut owner = rig.spawn_program("reaching", "dlopen", &[PTX, "owner"], &[]);
    owner.read_until("waiting");
    let mut opener = rig.spawn_program("reaching", "dlopen", &[PTX, "opener"], &[]);
    opener.read_until("waiting");
    owner.ask("handle");
    opener.ask(&format!("open {}", owner.facts["handle"]));
    opener.ask("check 20");
    assert_eq!(opener.number("differing"), 0, "another process's kernels read what the owner's wrote");
    opener.ask("write 21");
    owner.ask("check 21");
    assert_eq!(owner.number("differing"), 0, "and the other way round");
    for process in [&mut opener, &mut owner] {
        process.say("end");
        process.end();
    }
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}

#[test]
fn v16_kernels_reach_spilled_memory_of_every_kind_without_enabling_a_peer() {
    reach(&Shape::default());
}
