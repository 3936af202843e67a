//! What an unmodified program sees, takes, verifies and gives back.

use tarn_protocol::units::Bytes;

use crate::rig::{Rig, Shape, Tenant, until};

/// The whole story by one way of finding the driver's functions.
fn story(rig: &Rig, how: &str) {
    let mut tenant: Tenant = rig.spawn(how, &["everything"]);
    tenant.read_until("waiting");
    let total = rig.config.total_bytes().get();
    assert_eq!(tenant.number("devices"), 1, "{how}");
    assert_eq!(tenant.number("total"), total, "{how}");
    assert_eq!(tenant.number("info_total"), total, "{how}");
    assert!(total >= Bytes::gib(95).get());
    let uuid = rig.config.primary.uuid.to_bytes().map(|byte| format!("{byte:02x}")).concat();
    assert_eq!(tenant.facts["uuid"], uuid, "{how}: identity is the primary's");
    let (free, taken) = (tenant.number("free"), tenant.number("taken"));
    assert!(taken * 100 >= free * 99, "{how}: {taken} of {free} could be taken");
    assert_eq!(tenant.number("bad"), 0, "{how}");
    for &card in &rig.cards {
        assert!(rig.used(card) > Bytes::gib(23).get(), "{how}: card {card} holds {}", rig.used(card));
    }
    tenant.say("go on");
    tenant.end();
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}

#[test]
fn a_program_takes_all_four_cards_as_one_and_gives_them_back() {
    let rig = Rig::new(&Shape::default());
    story(&rig, "linked");
    assert_eq!(rig.log(), "", "nothing to complain about");
}
