//! Plans over random cards: they cover the request, fit the cards and leave the reserve.

use proptest::prelude::*;

use super::*;

fn rules() -> impl Strategy<Value = Rules> {
    let placement =
        prop_oneof![Just(Placement::LocalFirst), Just(Placement::Interleave), Just(Placement::Balanced)];
    (placement, 0u64..20, 1u64..20, 1u64..5).prop_map(|(placement, reserve, large, granule)| Rules {
        placement,
        reserve_bytes: reserve * UNIT,
        large_bytes: large * UNIT,
        granule_bytes: granule * UNIT,
        watched: false,
        pause_ms: None,
    })
}

fn cards() -> impl Strategy<Value = Cards> {
    // Free bytes are not multiples of the unit: what does not fill one is of no use.
    (0u64..40, prop::collection::vec(0u64..40, 0..4), 0..UNIT).prop_map(|(local, donors, odd)| Cards {
        local_bytes: local * UNIT + odd,
        donors: donors.into_iter().enumerate().map(|(at, units)| (at, units * UNIT + odd)).collect(),
        host: None,
    })
}

const HOST: usize = 4;

fn taken(segments: &[Segment], place: Place) -> u64 {
    segments.iter().filter(|segment| segment.place == place).map(|segment| segment.bytes).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_covers_the_request_and_fits_every_card(units in 0u64..160, cards in cards(), rules in rules()) {
        let bytes = units * UNIT;
        let capacity = floor(cards.local_bytes) + cards.donor_bytes();
        let Some(segments) = plan(bytes, bytes, &cards, rules) else {
            prop_assert!(bytes == 0 || bytes > capacity, "refused {bytes} of {capacity}");
            return Ok(());
        };
        prop_assert!(segments.iter().all(|segment| segment.bytes > 0 && segment.bytes.is_multiple_of(UNIT)));
        prop_assert_eq!(segments.iter().map(|segment| segment.bytes).sum::<u64>(), bytes);
        prop_assert!(taken(&segments, Place::Local) <= cards.local_bytes);
        for &(at, free) in &cards.donors {
            prop_assert!(taken(&segments, Place::Donor(at)) <= free);
        }
    }

    #[test]
    fn the_host_tier_takes_what_no_card_has_and_not_a_byte_more(
        units in 1u64..240, cards in cards(), host in 0u64..60, rules in rules()
    ) {
        let bytes = units * UNIT;
        let on_cards = floor(cards.local_bytes) + cards.donor_bytes();
        let tiered = Cards { host: Some((HOST, host * UNIT)), ..cards.clone() };
        let Some(segments) = plan(bytes, bytes, &tiered, rules) else {
            prop_assert!(bytes > on_cards + host * UNIT);
            return Ok(());
        };
        prop_assert_eq!(segments.iter().map(|segment| segment.bytes).sum::<u64>(), bytes);
        prop_assert_eq!(taken(&segments, Place::Donor(HOST)), bytes.saturating_sub(on_cards));
        if bytes <= on_cards {
            prop_assert_eq!(plan(bytes, bytes, &cards, rules), Some(segments), "cards with room go on as before");
        }
        let places = whole(bytes, &tiered, rules, 3);
        prop_assert!(!places.contains(&Place::Donor(HOST)), "handles stay on cards: {:?}", places);
    }

    #[test]
    fn a_large_request_leaves_the_reserve_while_donors_have_room(
        units in 1u64..160, cards in cards(), rules in rules()
    ) {
        let bytes = units * UNIT;
        let spare = floor(cards.local_bytes.saturating_sub(rules.reserve_bytes));
        if bytes < rules.large_bytes || spare + cards.donor_bytes() < bytes {
            return Ok(());
        }
        let segments = plan(bytes, bytes, &cards, rules).expect("there is room");
        prop_assert!(taken(&segments, Place::Local) <= spare);
    }

    #[test]
    fn small_requests_stay_local_while_they_fit(units in 1u64..20, cards in cards(), rules in rules()) {
        let bytes = units * UNIT;
        if bytes >= rules.large_bytes || floor(cards.local_bytes) < bytes {
            return Ok(());
        }
        let segments = plan(bytes, bytes, &cards, rules).expect("there is room");
        prop_assert_eq!(segments, vec![Segment { place: Place::Local, bytes }]);
    }

    #[test]
    fn an_unsplittable_request_tries_only_cards_that_can_hold_it(
        units in 1u64..40, turn: usize, cards in cards(), rules in rules()
    ) {
        let bytes = units * UNIT;
        let places = whole(bytes, &cards, rules, turn);
        prop_assert_eq!(places.iter().filter(|place| **place == Place::Local).count(), 1);
        for place in places {
            if let Place::Donor(donor) = place {
                prop_assert!(cards.donors.iter().any(|&(at, free)| at == donor && free >= bytes));
            }
        }
    }
}

fn check(placement: Placement, bytes: u64, expected: &[(Place, u64)]) {
    let cards = Cards { local_bytes: 10 * UNIT, donors: vec![(1, 20 * UNIT), (0, 5 * UNIT)], host: None };
    let rules = Rules {
        placement,
        reserve_bytes: 4 * UNIT,
        large_bytes: 4 * UNIT,
        granule_bytes: 2 * UNIT,
        watched: false,
        pause_ms: None,
    };
    let segments = plan(bytes * UNIT, bytes * UNIT, &cards, rules);
    let expected: Vec<Segment> =
        expected.iter().map(|&(place, units)| Segment { place, bytes: units * UNIT }).collect();
    assert_eq!(segments.unwrap_or_default(), expected, "{placement:?} {bytes}");
}

#[test]
fn policies_by_example() {
    use Place::{Donor, Local};
    check(Placement::LocalFirst, 3, &[(Local, 3)]);
    check(Placement::LocalFirst, 6, &[(Local, 6)]);
    check(Placement::LocalFirst, 8, &[(Local, 6), (Donor(1), 2)]);
    check(Placement::LocalFirst, 29, &[(Local, 6), (Donor(1), 20), (Donor(0), 3)]);
    check(Placement::LocalFirst, 35, &[(Local, 10), (Donor(1), 20), (Donor(0), 5)]);
    check(Placement::LocalFirst, 36, &[]);
    check(Placement::Interleave, 7, &[(Local, 2), (Donor(1), 2), (Donor(0), 2), (Local, 1)]);
    check(Placement::Balanced, 31, &[(Local, 6), (Donor(1), 20), (Donor(0), 5)]);
    check(Placement::Balanced, 16, &[(Local, 4), (Donor(1), 10), (Donor(0), 2)]);
}
