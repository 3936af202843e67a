//! The billing model: seeded worlds in virtual time, driven through the public functions and compared with oracles that are too
//! simple to be wrong. A failing world prints its seed; `lifecycle::run(seed)` or `exhaustion::run(seed)` replays it.

#![allow(clippy::unwrap_used)] // the whole binary is a test; the house rule sees only functions marked so

mod exhaustion;
mod golden;
mod ledger;
mod lifecycle;
mod world;

/// Worlds per family: a few seconds on one core, without optimisation.
const WORLDS: u64 = 2_000;

fn each_seed(run: impl Fn(u64) + std::panic::RefUnwindSafe) {
    for seed in 0..WORLDS {
        let outcome = std::panic::catch_unwind(|| run(seed));
        assert!(outcome.is_ok(), "the world of seed {seed} failed; its panic is above");
    }
}

#[test]
fn m1_m2_m5_m6_m7_m10_m11_m12_b3_b9_every_lifecycle_bills_its_truth() {
    each_seed(lifecycle::run);
}

#[test]
fn m3_m10_m13_m19_money_ends_where_a_step_by_step_walk_says() {
    each_seed(exhaustion::run);
}
