//! Ten thousand worlds, one per seed.

#![allow(clippy::unwrap_used, reason = "a test that cannot unwrap has failed")]

use tarn_simulation::{Script, Summary, TRIES_MAX, try_script};

/// Seeds in one run; `SEEDS` in the environment sets another number, `FIRST` another beginning.
const SEEDS: u64 = 10_000;
/// Threads of the test, each with a share of the seeds.
const SHARES: u64 = 4;

#[expect(clippy::disallowed_methods, reason = "a test is told its seed by whoever runs it")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[expect(clippy::disallowed_methods, reason = "a test is told its seed by whoever runs it")]
fn numbers(name: &str) -> Option<Vec<usize>> {
    let text = std::env::var(name).ok()?;
    Some(text.split(',').filter(|part| !part.is_empty()).map(|part| part.parse().unwrap()).collect())
}

fn plus(sum: Summary, one: Summary) -> Summary {
    Summary {
        instances: sum.instances + one.instances,
        segments: sum.segments + one.segments,
        seconds: sum.seconds + one.seconds,
        micros: sum.micros.saturating_add(one.micros),
        exhausted: sum.exhausted + one.exhausted,
        split: sum.split + one.split,
        expired_grants: sum.expired_grants + one.expired_grants,
        unpaid_seconds: sum.unpaid_seconds + one.unpaid_seconds,
    }
}

fn run(seeds: impl Iterator<Item = u64>) -> Summary {
    let tries_max = number("SHRINK").map_or(TRIES_MAX, |tries| usize::try_from(tries).unwrap());
    seeds.fold(Summary::default(), |sum, seed| match try_script(&Script::of(seed), None, tries_max) {
        Ok(one) => plus(sum, one),
        Err(failure) => panic!("{failure}"),
    })
}

#[test]
fn m1_to_m20_ten_thousand_worlds_end_at_the_truth() {
    let (first, seeds) = (number("FIRST").unwrap_or(0), number("SEEDS").unwrap_or(SEEDS));
    let shares: Vec<_> = (0..SHARES)
        .map(|share| {
            std::thread::spawn(move || run((first..first + seeds).filter(|seed| seed % SHARES == share)))
        })
        .collect();
    let total = shares.into_iter().map(|share| share.join().unwrap()).fold(Summary::default(), plus);
    println!("{seeds} worlds: {total:?}");
    // Worlds that reach nothing prove nothing.
    let some = usize::try_from(seeds / 100).unwrap();
    assert!(total.segments > some && total.split >= some && total.exhausted >= some, "{total:?}");
}

#[test]
fn replay() {
    let seed = number("SEED").unwrap_or(0);
    match try_script(&Script::of(seed), numbers("KEEP").as_deref(), TRIES_MAX) {
        Ok(summary) => println!("seed {seed} holds: {summary:?}"),
        Err(failure) => panic!("{failure}"),
    }
}
