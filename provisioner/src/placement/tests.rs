//! Placement on hand-made hosts (here), against brute force and itself on random ones (`properties`).

mod brute;
mod hosts;
mod properties;

use std::collections::BTreeSet;

use tarn_protocol::hardware::{GpuHealth, LinkClass, LinkGrade};
use tarn_protocol::ids::GpuUuid;
use tarn_protocol::units::Bytes;

use super::*;
use crate::snapshot::HostSnapshot;
use hosts::{
    bridged_pairs, card, certify, certify_at, failed_reasons, host, nvswitch, slots, stock,
    stock_without_links,
};

fn fleet(hosts: Vec<HostSnapshot>) -> Fleet {
    Fleet::new(hosts).expect("a sound snapshot")
}

fn nvlink(cards: usize) -> Request {
    Request { link_class: LinkClass::Nvlink, link_grade: LinkGrade::A, ..Request::cards(cards) }
}

/// Places and takes, and returns the slots chosen, primary first.
fn put(fleet: &mut Fleet, request: &Request) -> Vec<u8> {
    let placed = place(fleet, request).expect("room");
    fleet.take(placed.cards()).expect("free cards");
    slots(&placed)
}

#[test]
fn p3_stock_cards_without_peer_access_are_sold_singly_and_never_pooled() {
    let mut fleet = fleet(vec![stock(1, 8)]);
    let refusal = place(&fleet, &Request::cards(2)).unwrap_err();
    assert_eq!(failed_reasons(&refusal), [(Reason::LinksNotCertified, 1)]);
    assert_eq!(refusal.to_string(), "no host can place 2 cards now: 1 without certified links of that class");
    assert_eq!(availability(&fleet, &Request::cards(4)).count, 0);
    assert_eq!(put(&mut fleet, &Request::cards(1)), [0]);
    assert_eq!(availability(&fleet, &Request::cards(1)).count, 7);
}

#[test]
fn p3_a_class_without_a_valid_certificate_is_no_link() {
    let mut snapshot = stock_without_links(1, 2);
    certify(&mut snapshot, 0, 1, LinkClass::Nvlink);
    let certified = snapshot.clone();
    assert!(place(&fleet(vec![certified.clone()]), &nvlink(2)).is_ok());
    let spoiled: [fn(&mut HostSnapshot); 4] = [
        |host| host.links[0].valid = false,
        |host| host.links[1].certificate_id = None,
        |host| host.links[0].certified_at = None,
        |host| drop(host.links.pop()),
    ];
    for spoil in spoiled {
        let mut host = certified.clone();
        spoil(&mut host);
        let refusal = place(&fleet(vec![host]), &nvlink(2)).unwrap_err();
        assert_eq!(failed_reasons(&refusal), [(Reason::LinksNotCertified, 1)]);
    }
}

#[test]
fn p8_cliques_come_from_the_links_that_were_proven() {
    let direct = bridged_pairs(1, 4);
    let switched = nvswitch(1, 8);
    let mut ring = stock_without_links(1, 4);
    for (a, b) in [(0, 1), (1, 2), (2, 3), (3, 0)] {
        certify(&mut ring, a, b, LinkClass::Nvlink);
    }
    let mut star = stock_without_links(1, 4);
    for donor in [0, 1, 3] {
        certify(&mut star, 2, donor, LinkClass::Nvlink);
    }
    let mut mig = nvswitch(1, 8);
    mig.gpus[3].mig_enabled = true;
    let mut all_mig = nvswitch(1, 4);
    all_mig.gpus.iter_mut().for_each(|gpu| gpu.mig_enabled = true);
    for (what, host, cards, wanted) in [
        ("a bridged pair", &direct, 2, Ok(vec![0, 1])),
        ("four over two bridges", &direct, 4, Err(Reason::LinksNotCertified)),
        ("four of a switch", &switched, 4, Ok(vec![0, 1, 2, 3])),
        ("all of a switch", &switched, 8, Ok(vec![0, 1, 2, 3, 4, 5, 6, 7])),
        ("nine", &switched, 9, Err(Reason::TooFewCards)),
        ("three of a ring", &ring, 3, Ok(vec![1, 0, 2])),
        ("four of a ring", &ring, 4, Err(Reason::LinksNotCertified)),
        ("four of a star", &star, 4, Ok(vec![2, 0, 1, 3])),
        ("four beside a MIG card", &mig, 4, Ok(vec![4, 5, 6, 7])),
        ("eight with a MIG card", &mig, 8, Err(Reason::MigEnabled)),
        ("two MIG cards", &all_mig, 2, Err(Reason::MigEnabled)),
        ("one MIG card", &all_mig, 1, Err(Reason::MigEnabled)),
    ] {
        let placed = place(&fleet(vec![host.clone()]), &nvlink(cards));
        let got =
            placed.map(|placed| slots(&placed)).map_err(|refusal| *refusal.hosts.keys().next().unwrap());
        assert_eq!(got, wanted, "{what}");
    }
}

/// Every order of two Pool-2 and as many singles as fit beside them.
#[test]
fn p9_pools_of_two_get_bridged_pairs_and_singles_leave_pairs_whole_in_any_order() {
    for (pools, singles) in [(2, 0), (1, 2), (1, 1), (0, 4)] {
        let total = pools + singles;
        for order in 0u32..1 << total {
            if order.count_ones() != pools {
                continue;
            }
            let mut fleet = fleet(vec![bridged_pairs(1, 4)]);
            let mut broken: Option<u8> = None;
            for position in 0..total {
                if order & (1 << position) == 0 {
                    let slot = put(&mut fleet, &Request::cards(1))[0];
                    broken = match broken {
                        None => Some(slot / 2),
                        Some(pair) => {
                            assert_eq!(slot / 2, pair, "the second single joins the first");
                            None
                        }
                    };
                } else {
                    let pair = put(&mut fleet, &Request::cards(2));
                    assert_eq!(pair[0] / 2, pair[1] / 2, "order {order:b}: {pair:?} is bridged");
                }
            }
        }
    }
}

#[test]
fn p9_on_two_switches_of_two_pairs_each_fours_stay_whole_as_long_as_possible() {
    let mut fleet = fleet(vec![bridged_pairs(1, 8)]);
    assert_eq!(put(&mut fleet, &Request::cards(1)), [0]);
    assert_eq!(put(&mut fleet, &Request::cards(2)), [2, 3], "a pair of the broken four");
    assert_eq!(put(&mut fleet, &Request::cards(1)), [1]);
    assert_eq!(slots(&place(&fleet, &Request::cards(4)).unwrap()), [4, 5, 6, 7]);
}

#[test]
fn whole_hosts_are_started_last() {
    let mut fleet = fleet(vec![nvswitch(1, 8), nvswitch(2, 8)]);
    let first = place(&fleet, &nvlink(2)).unwrap();
    fleet.take(first.cards()).unwrap();
    for _ in 0..3 {
        let next = place(&fleet, &nvlink(2)).unwrap();
        assert_eq!(next.host_id, first.host_id);
        fleet.take(next.cards()).unwrap();
    }
    assert_ne!(place(&fleet, &nvlink(8)).unwrap().host_id, first.host_id);
}

#[test]
fn p6_the_next_set_avoids_the_cards_that_failed() {
    let fleet = fleet(vec![bridged_pairs(1, 8)]);
    let mut request = Request::cards(4);
    let mut seen: Vec<BTreeSet<u8>> = Vec::new();
    for _ in 0..2 {
        let placed = place(&fleet, &request).unwrap();
        seen.push(slots(&placed).into_iter().collect());
        request.excluded.push(placed.cards().cloned().collect());
    }
    assert_eq!(seen[0].intersection(&seen[1]).count(), 0, "{seen:?}");
    let refusal = place(&fleet, &request).unwrap_err();
    assert_eq!(failed_reasons(&refusal), [(Reason::AlreadyTried, 1)]);
    request.excluded = vec![BTreeSet::from([card(1, 5)])];
    assert_eq!(slots(&place(&fleet, &request).unwrap()), [0, 1, 2, 3], "one card alone can be barred");
}

#[test]
fn the_primary_is_the_card_whose_donors_are_fastest_and_donors_come_in_that_order() {
    let mut snapshot = stock_without_links(1, 4);
    let speeds = [(0, 1, 340), (0, 2, 320), (0, 3, 330), (1, 2, 310), (1, 3, 346), (2, 3, 345)];
    for (a, b, read) in speeds {
        certify_at(&mut snapshot, a, b, LinkClass::Nvlink, read * 1000);
    }
    let placed = place(&fleet(vec![snapshot]), &nvlink(4)).unwrap();
    assert_eq!(slots(&placed), [3, 1, 2, 0]);
    let reads: Vec<u64> = placed.donors.iter().map(|donor| donor.read_mb_per_second).collect();
    assert_eq!(reads, [346_000, 345_000, 330_000]);
    assert_eq!(placed.link_class(), Some(LinkClass::Nvlink));
}

#[test]
fn every_reason_has_a_host_that_shows_it() {
    let changed = |change: &dyn Fn(&mut HostSnapshot)| {
        let mut host = nvswitch(1, 4);
        change(&mut host);
        fleet(vec![host])
    };
    let every = |host: &mut HostSnapshot, change: &dyn Fn(&mut crate::snapshot::GpuSnapshot)| {
        host.gpus.iter_mut().for_each(change);
    };
    let request = Request { card_memory_bytes: Bytes::gib(24), ..nvlink(4) };
    for (wanted, fleet) in [
        (Reason::DriverTooOld, changed(&|host| host.driver_version = "545.23.08".into())),
        (Reason::DriverTooOld, changed(&|host| host.driver_version = "unknown".into())),
        (Reason::Cordoned, changed(&|host| host.cordoned = true)),
        (Reason::Unreachable, changed(&|host| host.unreachable = true)),
        (Reason::TooFewCards, changed(&|host| drop(host.gpus.pop()))),
        (Reason::TooFewCards, changed(&|host| host.gpus[0].model = "another".into())),
        (Reason::TooFewCards, changed(&|host| host.gpus[0].memory_bytes = Bytes::gib(48))),
        (Reason::MemoryTooSmall, changed(&|host| every(host, &|gpu| gpu.memory_bytes = Bytes::gib(23)))),
        (Reason::DisplayActive, changed(&|host| host.gpus[0].display_active = true)),
        (
            Reason::CardsUnhealthy,
            changed(&|host| host.gpus[0].health = GpuHealth::Drain { reason: "xid_63".into() }),
        ),
        (Reason::InUse, changed(&|host| host.gpus[0].lease = Some(hosts::lease(1)))),
    ] {
        let refusal = place(&fleet, &request).unwrap_err();
        assert_eq!(failed_reasons(&refusal), [(wanted, 1)]);
        assert_eq!(refusal.may_fit_later(), wanted == Reason::InUse);
    }
    let fleet = fleet(vec![nvswitch(1, 4)]);
    for (wanted, request) in [
        (Reason::ModelMissing, Request { model: Some("NVIDIA H200".into()), ..nvlink(4) }),
        (Reason::OtherRegion, Request { region: Some("elsewhere".into()), ..nvlink(4) }),
        (Reason::OtherHost, Request { host: Some(host(9, 1).id), ..nvlink(4) }),
    ] {
        assert_eq!(failed_reasons(&place(&fleet, &request).unwrap_err()), [(wanted, 1)]);
    }
}

#[test]
fn s8_a_card_out_of_service_gets_nothing_and_a_warned_card_only_when_no_other_is_left() {
    let mut snapshot = nvswitch(1, 3);
    snapshot.gpus[0].health = GpuHealth::OutOfService { reason: "row_remap_failed".into() };
    snapshot.gpus[1].health = GpuHealth::Degraded { reason: "temperature".into() };
    let mut fleet = fleet(vec![snapshot]);
    assert_eq!(put(&mut fleet, &Request::cards(1)), [2]);
    assert_eq!(put(&mut fleet, &Request::cards(1)), [1]);
    assert!(place(&fleet, &Request::cards(1)).is_err());
}

#[test]
fn s9_alternatives_are_the_offers_that_fit_now() {
    let fleet = fleet(vec![bridged_pairs(1, 4)]);
    let offers = [("pool-192", Request::cards(8)), ("pool-48", nvlink(2)), ("card-24", Request::cards(1))];
    let found = alternatives(&fleet, offers);
    let counts: Vec<(&str, u32)> =
        found.iter().map(|found| (found.offer, found.availability.count)).collect();
    assert_eq!(counts, [("pool-48", 2), ("card-24", 4)]);
    let links = found[0].availability.links.unwrap();
    assert_eq!((links.class_min, links.class_max), (LinkClass::Nvlink, LinkClass::Nvlink));
    assert_eq!((links.read_mb_per_second_min, links.read_mb_per_second_max), (56_000, 56_000));
    assert_eq!(found[1].availability.links, None);
}

#[test]
fn cards_are_taken_and_released_all_or_none() {
    let mut fleet = fleet(vec![bridged_pairs(1, 4)]);
    let (a, b, ghost) = (card(1, 0), card(1, 1), GpuUuid::from_bytes([0xff; 16]));
    fleet.take([&a]).unwrap();
    for (cards, wanted) in [
        (vec![&b, &a], crate::fleet::TakeError::InUse(a.clone())),
        (vec![&b, &ghost], crate::fleet::TakeError::UnknownCard(ghost.clone())),
        (vec![&b, &b], crate::fleet::TakeError::Twice(b.clone())),
    ] {
        assert_eq!(fleet.take(cards), Err(wanted));
        assert_eq!(fleet.cards_free(), 3);
    }
    assert_eq!(fleet.release([&b]), Err(crate::fleet::TakeError::NotInUse(b.clone())));
    fleet.release([&a]).unwrap();
    assert_eq!(fleet.cards_free(), 4);
}
