//! What holds on any fleet.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tarn_protocol::hardware::{GpuHealth, LinkClass, LinkGrade};

use super::hosts::{card, certify_at, host, lease};
use super::{brute, fleet};
use crate::placement::{Reason, Request, availability, place, place_by_scan};
use crate::snapshot::HostSnapshot;

fn links() -> impl Strategy<Value = Option<(LinkClass, u64)>> {
    prop_oneof![
        2 => Just(None),
        3 => Just(Some((LinkClass::Nvlink, 56_000))),
        2 => (20_000u64..26_000).prop_map(|speed| Some((LinkClass::PcieP2p, speed))),
    ]
}

fn one_host(number: u8, cards_max: u8) -> impl Strategy<Value = HostSnapshot> {
    let pairs = usize::from(cards_max) * usize::from(cards_max);
    (
        1..=cards_max,
        prop::collection::vec(links(), pairs),
        prop::collection::vec(0u8..40, usize::from(cards_max)),
        0u8..12,
        any::<prop::sample::Index>(),
    )
        .prop_map(move |(cards, links, traits, standing, doubtful)| {
            let mut made = host(number, cards);
            for a in 0..cards {
                for b in a + 1..cards {
                    if let Some((class, speed)) = links[usize::from(a * cards_max + b)] {
                        certify_at(&mut made, a, b, class, speed);
                    }
                }
            }
            for (gpu, dice) in made.gpus.iter_mut().zip(traits) {
                match dice {
                    0 => gpu.mig_enabled = true,
                    1 => gpu.display_active = true,
                    2 => gpu.health = GpuHealth::Degraded { reason: "warm".into() },
                    3 => gpu.health = GpuHealth::Drain { reason: "xid_63".into() },
                    4..8 => gpu.model = "another".into(),
                    8..16 => gpu.lease = Some(lease(1)),
                    _ => {}
                }
            }
            match standing {
                0 => made.cordoned = true,
                1 => made.unreachable = true,
                2 => made.driver_version = "535.54.03".into(),
                _ => {}
            }
            if !made.links.is_empty() {
                let at = doubtful.index(made.links.len());
                made.links[at].valid = standing % 2 == 0;
            }
            made
        })
}

fn some_hosts(cards_max: u8) -> impl Strategy<Value = Vec<HostSnapshot>> {
    (one_host(1, cards_max), one_host(2, cards_max), one_host(3, cards_max), 1usize..=3).prop_map(
        |(a, b, c, count)| {
            let mut hosts = vec![a, b, c];
            hosts.truncate(count);
            hosts
        },
    )
}

fn request() -> impl Strategy<Value = Request> {
    (1usize..=5, any::<bool>(), 0u8..4, prop::collection::vec((1u8..=3, 0u8..6, 0u8..6), 0..3)).prop_map(
        |(cards, nvlink, filter, excluded)| Request {
            link_class: if nvlink { LinkClass::Nvlink } else { LinkClass::PcieP2p },
            link_grade: if nvlink { LinkGrade::A } else { LinkGrade::B },
            model: (filter == 1).then(|| "another".into()),
            host: (filter == 2).then(|| host(2, 1).id),
            excluded: excluded
                .into_iter()
                .map(|(host, a, b)| BTreeSet::from([card(host, a), card(host, b)]))
                .collect(),
            ..Request::cards(cards)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn brute_force_finds_nothing_better(hosts in some_hosts(6), wanted in request()) {
        let wanted = Request { excluded: Vec::new(), host: None, ..wanted };
        let placed = place(&fleet(hosts.clone()), &wanted);
        let judged = placed.ok().map(|placed| {
            (placed.score.warned, placed.score.weakest_link, placed.score.groups_lost)
        });
        prop_assert_eq!(judged, brute::best(&hosts, &wanted));
    }

    #[test]
    fn the_index_answers_as_the_scan_and_whatever_the_order_of_rows(
        hosts in some_hosts(6),
        requests in prop::collection::vec(request(), 1..8),
    ) {
        let mut one = fleet(hosts.clone());
        let mut shuffled = hosts;
        shuffled.reverse();
        for host in &mut shuffled {
            host.gpus.reverse();
            host.links.reverse();
        }
        let mut other = fleet(shuffled);
        for wanted in requests {
            let placed = place(&one, &wanted);
            prop_assert_eq!(&placed, &place_by_scan(&one, &wanted));
            prop_assert_eq!(&placed, &place(&other, &wanted));
            if let Ok(placed) = placed {
                one.take(placed.cards()).unwrap();
                other.take(placed.cards()).unwrap();
            }
        }
    }

    #[test]
    fn no_card_is_placed_twice_and_every_set_is_what_was_asked_for(
        hosts in some_hosts(6),
        requests in prop::collection::vec(request(), 1..12),
    ) {
        let mut fleet = fleet(hosts);
        let mut taken = BTreeSet::new();
        for wanted in requests {
            let Ok(placed) = place(&fleet, &wanted) else { continue };
            let cards: BTreeSet<_> = placed.cards().cloned().collect();
            prop_assert_eq!(cards.len(), wanted.cards);
            prop_assert!(!wanted.excluded.iter().any(|failed| failed.is_subset(&cards)));
            for donor in &placed.donors {
                prop_assert!(donor.link_class >= wanted.link_class && donor.grade >= wanted.link_grade);
            }
            prop_assert!(placed.donors.is_sorted_by(|a, b| a.read_mb_per_second >= b.read_mb_per_second));
            for uuid in cards {
                prop_assert!(taken.insert(uuid));
            }
            fleet.take(placed.cards()).unwrap();
        }
    }

    #[test]
    fn what_is_refused_stays_refused_for_lasting_reasons_as_cards_go(
        hosts in some_hosts(6),
        wanted in request(),
        others in prop::collection::vec(request(), 0..8),
    ) {
        let total = hosts.len();
        let mut fleet = fleet(hosts);
        let mut before = place(&fleet, &wanted).err();
        for other in others {
            let Ok(placed) = place(&fleet, &other) else { continue };
            fleet.take(placed.cards()).unwrap();
            let now = place(&fleet, &wanted).err();
            if let Some(old) = &before {
                let new = now.as_ref().expect("taking cards never makes room");
                prop_assert_eq!(new.hosts.values().sum::<usize>(), total);
                for (reason, hosts) in &new.hosts {
                    let fleeting = matches!(reason, Reason::InUse | Reason::AlreadyTried);
                    prop_assert!(fleeting || old.hosts.get(reason) == Some(hosts), "{} {}", old, new);
                }
            }
            before = now;
        }
    }

    #[test]
    fn availability_is_never_less_than_what_can_be_placed(hosts in some_hosts(6), wanted in request()) {
        let wanted = Request { excluded: Vec::new(), ..wanted };
        let mut fleet = fleet(hosts);
        let promised = availability(&fleet, &wanted).count;
        let (mut left, mut placed_count) = (promised, 0);
        while let Ok(placed) = place(&fleet, &wanted) {
            fleet.take(placed.cards()).unwrap();
            placed_count += 1;
            let now = availability(&fleet, &wanted).count;
            prop_assert!(now < left);
            left = now;
        }
        prop_assert!(placed_count <= promised);
        prop_assert_eq!(promised == 0, placed_count == 0);
    }

    #[test]
    fn taking_and_releasing_is_as_if_nothing_had_happened(hosts in some_hosts(6), wanted in request()) {
        let mut fleet = fleet(hosts);
        let first = place(&fleet, &wanted);
        if let Ok(placed) = &first {
            fleet.take(placed.cards()).unwrap();
            fleet.release(placed.cards()).unwrap();
        }
        prop_assert_eq!(place(&fleet, &wanted), first);
    }
}
