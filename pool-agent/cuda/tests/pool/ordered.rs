//! Stream-ordered memory, and what captures forbid.

use tarn_protocol::units::Bytes;

use crate::rig::{Rig, Shape, Tenant, until};

fn tells(rig: &Rig, how: &str, what: &str) -> Tenant {
    rig.spawn_program("ordered", how, &[what], &[])
}

fn local_bytes(rig: &Rig) -> u64 {
    rig.observer().processes().iter().map(|held| held.local_bytes).sum()
}

#[test]
fn large_stream_ordered_requests_leave_the_reserve_and_small_ones_are_served_to_the_last_byte() {
    let rig = Rig::new(&Shape::default());
    let mut tenant = tells(&rig, "dlopen", "reserve");
    tenant.read_until("waiting");
    let reserve = rig.config.reserve_bytes().get();
    let spare = rig.config.primary.memory_bytes.get() - local_bytes(&rig);
    assert!(spare >= reserve, "{spare} bytes of the primary are left");
    tenant.say("go on");
    tenant.end();
    let (before, taken) = (tenant.number("before"), tenant.number("taken"));
    assert!(taken * 100 >= before * 99, "{taken} of {before}");
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}

#[test]
fn m9_what_a_pool_keeps_is_charged_until_it_is_trimmed_or_needed() {
    let rig = Rig::new(&Shape { donors: vec![], cap_bytes: Some(Bytes::gib(6)), ..Shape::default() });
    let mut tenant = tells(&rig, "dlopen", "kept");
    tenant.read_until("waiting");
    assert_eq!(tenant.number("kept"), Bytes::gib(4).get());
    assert_eq!(local_bytes(&rig), Bytes::gib(4).get(), "every process sees it taken");
    tenant.say("go on");
    tenant.end();
    assert_eq!(tenant.number("trimmed"), Bytes::gib(1).get());
    assert_eq!(tenant.number("given_way"), Bytes::gib(6).get() - Bytes::gib(1).get() / 2);
}

/// The card itself would take the first: the cap does not.
#[test]
fn v9_a_captured_allocation_that_the_primary_can_never_hold_is_refused_at_once() {
    for (cap_bytes, beyond) in [(Some(Bytes::gib(6)), Bytes::gib(8)), (None, Bytes::gib(30))] {
        let rig = Rig::new(&Shape { cap_bytes, ..Shape::default() });
        for how in ["dlopen", "procaddress"] {
            rig.spawn_program("ordered", how, &["node", &beyond.to_string()], &[]).end();
        }
        assert_eq!(rig.log(), "");
    }
}

#[test]
fn v9_nothing_is_mapped_where_a_capture_forbids_it() {
    let rig = Rig::new(&Shape::default());
    for how in ["dlopen", "procaddress"] {
        tells(&rig, how, "capture").end();
    }
    assert_eq!(rig.log(), "");
}
