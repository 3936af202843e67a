//! The host's own memory behind a full pool: used last, shown nowhere as device memory, and given back whoever dies.

use tarn_protocol::broker_wire::DonorFigures;
use tarn_protocol::units::Bytes;

use crate::rig::{Rig, Shape, Tenant, until};

const TIER: Bytes = Bytes::gib(6);

fn tiered() -> Shape {
    Shape { host_tier_bytes: Some(TIER), ..Shape::default() }
}

fn tier(rig: &Rig) -> DonorFigures {
    *rig.observer().donors().last().unwrap()
}

fn overflowing(rig: &Rig, block: Bytes) -> Tenant {
    let mut tenant = rig.spawn_program("hinting", "dlopen", &["overflow", &block.to_string()], &[]);
    tenant.read_until("waiting");
    tenant
}

fn all_given_back(rig: &Rig) {
    until("nothing is leased", || {
        rig.observer().donors().iter().all(|donor| donor.leased_bytes + donor.quarantined_bytes == 0)
    });
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}

#[test]
fn what_no_card_has_room_for_lies_on_the_host_and_no_window_counts_it() {
    let rig = Rig::new(&tiered());
    let mut tenant = overflowing(&rig, Bytes::gib(1));
    let (total, host) = (tenant.number("total"), tenant.number("host"));
    assert_eq!(total, rig.config.total_bytes().get());
    assert!((TIER.get() - Bytes::gib(1).get()..=TIER.get()).contains(&host), "{:?}", tenant.facts);
    assert!(tenant.number("taken") > tenant.number("free"), "{:?}", tenant.facts);
    assert!(tenant.number("full") < Bytes::gib(1).get(), "the cards are full before the host is used");
    assert_eq!(tier(&rig).leased_bytes, host);
    let donors: u64 = rig.observer().donors()[..3].iter().map(|donor| donor.leased_bytes).sum();
    assert_eq!(tenant.number("donors"), donors);
    assert_eq!(rig.observer().processes()[0].donor_bytes, donors, "NVML shows processes what donors hold");
    tenant.ask("check");
    assert_eq!(tenant.number("bad"), 0);
    tenant.say("free");
    tenant.end();
    all_given_back(&rig);
    assert_eq!(rig.log(), "");
}

#[test]
fn a_killed_process_leaves_nothing_on_the_host() {
    let rig = Rig::new(&tiered());
    let mut victim = overflowing(&rig, Bytes::gib(2));
    assert!(victim.number("host") > 0);
    victim.kill();
    all_given_back(&rig);
    let mut next = overflowing(&rig, Bytes::gib(2));
    assert!(next.number("host") > 0, "the tier is whole again: {:?}", next.facts);
    next.ask("check");
    assert_eq!(next.number("bad"), 0);
    next.say("free");
    next.end();
    all_given_back(&rig);
}

#[test]
fn a_broker_may_die_and_return_and_the_tier_is_never_lent_twice() {
    let mut rig = Rig::new(&tiered());
    let mut holder = overflowing(&rig, Bytes::gib(1));
    let host = holder.number("host");
    rig.kill_broker();
    holder.ask("check");
    assert_eq!(holder.number("bad"), 0, "bytes outlive the broker");
    rig.start_broker(&[]);
    assert_eq!(
        tier(&rig),
        DonorFigures { quarantined_bytes: host, ..tier(&rig) },
        "unclaimed bytes are lent to nobody"
    );
    until("the process is recognised", || {
        holder.ask("more");
        tier(&rig).leased_bytes == host
    });
    assert_eq!((holder.number("more"), tier(&rig).quarantined_bytes), (2, 0));
    holder.say("free");
    holder.end();
    is_lent_again(&rig, host);
}

/// All of it came back, and the next process gets as much.
fn is_lent_again(rig: &Rig, host: u64) {
    all_given_back(rig);
    let mut next = overflowing(rig, Bytes::gib(1));
    assert_eq!(next.number("host"), host);
    next.say("free");
    next.end();
}

/// Nothing but the process's own word tells the next broker that memory of the host is free.
#[test]
fn what_a_process_gives_back_while_no_broker_is_there_is_free_for_the_next() {
    for back_before_it_frees in [false, true] {
        let mut rig = Rig::new(&tiered());
        let mut holder = overflowing(&rig, Bytes::gib(1));
        let host = holder.number("host");
        rig.kill_broker();
        if back_before_it_frees {
            rig.start_broker(&[]);
            holder.say("free");
            holder.end();
        } else {
            holder.ask("drop");
            rig.start_broker(&[]);
            assert_eq!(tier(&rig).quarantined_bytes, host, "the broker cannot know yet");
            until("the process is heard", || {
                holder.ask("more");
                tier(&rig).quarantined_bytes == 0
            });
            holder.say("free");
            holder.end();
        }
        is_lent_again(&rig, host);
    }
}

#[test]
fn a_pool_of_one_capped_card_may_overflow_too() {
    let rig = Rig::new(&Shape { donors: Vec::new(), cap_bytes: Some(Bytes::gib(8)), ..tiered() });
    let mut tenant = overflowing(&rig, Bytes::gib(1));
    assert_eq!(tenant.number("total"), Bytes::gib(8).get());
    assert!(tenant.number("host") > Bytes::gib(4).get(), "{:?} {} {:?}", tenant.facts, rig.log(), tier(&rig));
    assert_eq!(tenant.number("donors"), 0);
    // The tenant's other processes find the tier as empty as it is.
    let mut other = overflowing(&rig, Bytes::gib(1));
    assert_eq!((other.number("taken"), other.number("host")), (0, 0), "{:?}", other.facts);
    other.say("free");
    other.end();
    tenant.ask("check");
    assert_eq!(tenant.number("bad"), 0);
    tenant.say("free");
    tenant.end();
    all_given_back(&rig);
}
