//! The rhythm of requests, by example and at random: what is kept is never more than the reserve, a primary that is crowded once keeps its last
//! quarter from large requests, and what fits anywhere is never refused.

use proptest::prelude::*;
use tarn_protocol::pool_config::Placement;

use super::*;
use crate::placement::{Cards, Place, UNIT, plan, whole};

const MIB: u64 = 1 << 20;
const RULES: Rules = Rules {
    placement: Placement::LocalFirst,
    reserve_bytes: 1024 * MIB,
    large_bytes: 64 * MIB,
    granule_bytes: UNIT,
    watched: true,
    pause_ms: None,
};
const FULL: u64 = 1100 * MIB;

/// What a request keeps, if it is large.
fn kept(growth: &mut Growth, bytes: u64, left: u64, now_ms: u64) -> Option<u64> {
    growth.meet(bytes, RULES, now_ms).then(|| growth.keep(bytes, left, RULES) / MIB)
}

/// Weights at a steady pace into a roomy primary; when that ends.
fn load(growth: &mut Growth, bytes: u64, every_ms: u64) -> u64 {
    let mut now_ms = 0;
    for _ in 0..100 {
        now_ms += every_ms;
        kept(growth, bytes, 64 << 30, now_ms);
    }
    now_ms
}

#[test]
fn while_a_model_loads_large_requests_keep_the_reserve_and_small_ones_nothing() {
    let mut growth = Growth::default();
    let now = load(&mut growth, 128 * MIB, 10);
    assert_eq!(kept(&mut growth, 128 * MIB, FULL, now + 10), Some(1024));
    assert_eq!(kept(&mut growth, 20 * MIB, FULL, now + 11), None);
}

#[test]
fn requests_of_one_size_are_large_together() {
    let mut growth = Growth::default();
    let small = (0..40).take_while(|_| kept(&mut growth, 20 * MIB, FULL, 1).is_none()).count();
    assert_eq!(small, 12, "a quarter of the reserve");
    assert_eq!(kept(&mut growth, 20 * MIB, FULL, 1), Some(1024));
    assert_eq!(kept(&mut growth, 32 * MIB, FULL, 1), None, "another size is counted for itself");
    for _ in 0..10 {
        growth.freed(20 * MIB);
    }
    assert_eq!(kept(&mut growth, 20 * MIB, FULL, 1), None, "what is freed does not count");
}

#[test]
fn handles_that_are_opened_at_once_are_one_request() {
    let mut growth = Growth::default();
    assert!(!growth.opens_small(140 * MIB, RULES) && !growth.opens_small(64 * MIB, RULES));
    assert!(growth.opens_small(40 * MIB, RULES));
    let small = (0..40).take_while(|_| growth.opens_small(20 * MIB, RULES)).count();
    assert_eq!(small, 12, "a quarter of the reserve, of one size");
    assert!(growth.opens_small(40 * MIB, RULES), "another size is counted for itself");
    growth.closed(20 * MIB, 20 * MIB);
    growth.closed(20 * MIB, 20 * MIB);
    assert!(growth.opens_small(20 * MIB, RULES), "what is gone does not count");
    growth.pause();
    assert!(growth.opens_small(20 * MIB, RULES));
}

#[test]
fn after_a_pause_a_burst_takes_half_of_what_is_left_and_never_the_last_quarter() {
    let mut growth = Growth::default();
    let mut now = load(&mut growth, 128 * MIB, 10);
    for (left, keep) in [(1024, 512), (600, 300), (400, 256), (300, 1024)] {
        now += 100;
        assert_eq!(kept(&mut growth, 64 * MIB, left * MIB, now), Some(keep), "{left} MiB left");
    }
    // What does not fit whole keeps everything; the burst goes on.
    now += 100;
    assert_eq!(kept(&mut growth, 600 * MIB, 1024 * MIB, now), Some(1024));
    assert_eq!(kept(&mut growth, 128 * MIB, 1024 * MIB, now), Some(512));
    assert_eq!(kept(&mut growth, 128 * MIB, 700 * MIB, now), Some(512), "one figure a burst");
}

#[test]
fn a_pause_is_longer_for_who_loads_slowly_and_can_be_told() {
    for (every, short, long) in [(10, 99, 100), (500, 1_900, 2_100), (20_000, 9_000, 10_100)] {
        let mut growth = Growth::default();
        let now = load(&mut growth, 128 * MIB, every);
        if every < PAUSE_MOST_MS {
            assert_eq!(kept(&mut growth, 128 * MIB, FULL, now + short), Some(1024), "{every} ms");
        }
        let now = now + short + long;
        assert_eq!(kept(&mut growth, 128 * MIB, FULL, now), Some(512), "{every} ms");
    }
    let mut growth = Growth::default();
    let now = load(&mut growth, 128 * MIB, 10);
    growth.pause();
    assert_eq!(kept(&mut growth, 128 * MIB, FULL, now + 1), Some(512));
}

#[test]
fn a_pause_beside_a_roomy_primary_changes_nothing() {
    let mut growth = Growth::default();
    let now = load(&mut growth, 128 * MIB, 10);
    assert_eq!(kept(&mut growth, 128 * MIB, 4096 * MIB, now + 5_000), Some(1024));
    assert_eq!(kept(&mut growth, 128 * MIB, FULL, now + 5_010), Some(1024), "loading goes on");
}

#[test]
fn short_lived_sizes_are_hot_a_few_times() {
    let mut growth = Growth::default();
    let now = load(&mut growth, 128 * MIB, 10);
    growth.lived(256 * MIB, SHORT_LIVED_MS + 1);
    assert_eq!(kept(&mut growth, 256 * MIB, FULL, now), Some(1024), "it had lived");
    for _ in 0..64 {
        growth.lived(256 * MIB, 5);
    }
    for _ in 0..CREDITS_MAX {
        assert_eq!(kept(&mut growth, 256 * MIB, FULL, now), None);
    }
    assert_eq!(kept(&mut growth, 256 * MIB, FULL, now), Some(1024));
    growth.lived(2048 * MIB, 5);
    assert_eq!(kept(&mut growth, 2048 * MIB, FULL, now), Some(1024), "larger than the reserve");
}

/// A process over two cards, moved by growth and plan alone.
#[derive(Debug, Clone)]
enum Step {
    Take { units: u64, whole: bool, small: bool },
    Free { which: usize },
    Wait { ms: u64 },
    Loaded,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1u64..80, any::<bool>(), any::<bool>()).prop_map(|(units, whole, small)| Step::Take { units, whole, small }),
        2 => any::<usize>().prop_map(|which| Step::Free { which }),
        1 => (0u64..3_000).prop_map(|ms| Step::Wait { ms }),
        1 => Just(Step::Loaded),
    ]
}

/// Where the bytes of a block lie.
type Held = Vec<(Place, u64)>;

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn nothing_that_fits_is_refused_and_the_last_quarter_is_left_while_donors_have_room(
        steps in prop::collection::vec(step(), 1..200), local in 1u64..600, donor in 0u64..600
    ) {
        let rules = Rules { reserve_bytes: 64 * UNIT, large_bytes: 16 * UNIT, ..RULES };
        let mut cards = Cards { local_bytes: local * UNIT, donors: vec![(0, donor * UNIT)], host: None };
        let (mut growth, mut now, mut held) = (Growth::default(), 0, Vec::<(Held, u64, u64)>::new());
        for step in steps {
            match step {
                Step::Wait { ms } => now += ms,
                Step::Loaded => growth.pause(),
                Step::Free { which } if !held.is_empty() => {
                    let (block, bytes, made) = held.swap_remove(which % held.len());
                    growth.freed(bytes);
                    growth.lived(bytes, now - made);
                    for (place, bytes) in block {
                        match place {
                            Place::Local => cards.local_bytes += bytes,
                            Place::Donor(_) => cards.donors[0].1 += bytes,
                        }
                    }
                }
                Step::Free { .. } => {}
                Step::Take { units, whole: in_one, small } => {
                    let bytes = if small { units % 16 + 1 } else { units } * UNIT;
                    let (before, donor_free) = (cards.local_bytes, cards.donors[0].1);
                    let large = growth.meet(bytes, rules, now);
                    let mut asked = rules.sized(large);
                    if large {
                        asked.reserve_bytes = growth.keep(bytes, before, rules);
                    }
                    prop_assert!(asked.reserve_bytes <= rules.reserve_bytes);
                    let block: Held = if in_one {
                        let fits = |place: &Place| match place {
                            Place::Local => before >= bytes,
                            Place::Donor(_) => donor_free >= bytes,
                        };
                        let place = whole(bytes, &cards, asked, 0).into_iter().find(fits);
                        prop_assert_eq!(place.is_some(), before.max(donor_free) >= bytes);
                        place.map(|place| (place, bytes)).into_iter().collect()
                    } else {
                        let planned = plan(bytes, bytes, &cards, asked);
                        prop_assert_eq!(planned.is_some(), before + donor_free >= bytes);
                        planned.unwrap_or_default().iter().map(|part| (part.place, part.bytes)).collect()
                    };
                    for &(place, bytes) in &block {
                        match place {
                            Place::Local => cards.local_bytes -= bytes,
                            Place::Donor(_) => cards.donors[0].1 -= bytes,
                        }
                    }
                    let took = before - cards.local_bytes;
                    if large && took > 0 && donor_free >= bytes {
                        prop_assert!(cards.local_bytes >= rules.reserve_bytes / QUARTER);
                    }
                    if !block.is_empty() {
                        held.push((block, bytes, now));
                    }
                }
            }
        }
    }

    #[test]
    fn a_load_without_pauses_never_touches_the_reserve(
        sizes in prop::collection::vec(16u64..64, 1..300), local in 64u64..1_000
    ) {
        let rules = Rules { reserve_bytes: 64 * UNIT, large_bytes: 16 * UNIT, ..RULES };
        let mut cards = Cards { local_bytes: local * UNIT, donors: vec![(0, 1 << 50)], host: None };
        let mut growth = Growth::default();
        for (at, units) in sizes.into_iter().enumerate() {
            let bytes = units * UNIT;
            prop_assert!(growth.meet(bytes, rules, at as u64 * 20), "at least the large size");
            let asked = Rules { reserve_bytes: growth.keep(bytes, cards.local_bytes, rules), ..rules.sized(true) };
            for part in plan(bytes, bytes, &cards, asked).unwrap() {
                cards.take(part);
            }
            prop_assert!(cards.local_bytes >= rules.reserve_bytes);
        }
    }
}
