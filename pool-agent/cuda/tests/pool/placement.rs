//! Where weights and activations end up, replayed as frameworks take them: by residency, not by time.
//!
//! `TARN_PAUSE_MS` is out of reach where the program itself says that it has loaded, so that a slow machine makes no pause of its own.

use tarn_protocol::units::Bytes;

use crate::rig::{Rig, Shape, until};

const NEVER: (&str, &str) = ("TARN_PAUSE_MS", "3600000");

/// Bytes of weights and of activations, each on the primary and far.
struct Ends {
    weights: (u64, u64),
    activations: (u64, u64),
}

fn replay(rig: &Rig, story: &str, env: &[(&str, &str)]) -> Ends {
    let words: Vec<&str> = story.split(' ').collect();
    let mut tenant = rig.spawn_program("loading", "dlopen", &words, env);
    tenant.end();
    assert_eq!(tenant.number("bad"), 0);
    let pair = |what: &str| (tenant.number(&format!("{what}_local")), tenant.number(&format!("{what}_far")));
    Ends { weights: pair("weights"), activations: pair("activations") }
}

/// The reserve is left while the weights come, and the activations end on the primary.
fn near(story: &str, env: &[(&str, &str)], activation_bytes: Bytes) {
    let rig = Rig::new(&Shape::default());
    let ends = replay(&rig, story, env);
    let (reserve, primary) = (rig.config.reserve_bytes().get(), rig.config.primary_bytes().get());
    assert!(ends.weights.0 > primary / 2 && ends.weights.1 > 0, "{story}: the primary is full of weights");
    assert!(ends.weights.0 <= primary - reserve, "{story}: {} local bytes of weights", ends.weights.0);
    assert_eq!(ends.activations, (activation_bytes.get(), 0), "{story}");
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}

#[test]
fn activations_as_large_as_weights_are_near_once_the_model_is_loaded() {
    near("eager 128 240 128 3 said", &[NEVER], Bytes::mib(3 * 128));
    near("async 128 240 128 3 said", &[NEVER], Bytes::mib(3 * 128));
}

/// 240 weights fill whole handles, so the activations come in handles of their own.
#[test]
fn handles_of_20_mib_are_one_model_and_its_activations_are_near() {
    near("expandable 120 256 120 4 said", &[NEVER], Bytes::mib(4 * 120));
}

#[test]
fn layers_below_the_large_size_are_a_model_too() {
    near("eager 32 1000 128 3 said", &[NEVER], Bytes::mib(3 * 128));
    near("async 32 1000 96 4 said", &[NEVER], Bytes::mib(4 * 96));
}

/// The whole machine may pause, too: half of the reserve is then gone before the activations come, and what is left still holds them.
#[test]
fn a_program_that_rests_before_its_first_batch_has_said_enough() {
    near_enough("eager 128 240 128 2 slept 1100");
    near_enough("expandable 120 256 60 3 slept 1100");
}

fn near_enough(story: &str) {
    let rig = Rig::new(&Shape::default());
    let ends = replay(&rig, story, &[("TARN_PAUSE_MS", "1000")]);
    assert_eq!(ends.activations.1, 0, "{story}: {:?}", ends.activations);
}

/// Without a pause nothing tells weights and activations of one size apart. Small ones are near all the same.
#[test]
fn straight_after_the_weights_only_small_requests_are_near() {
    let rig = Rig::new(&Shape::default());
    let straight = |story: &str| replay(&rig, story, &[NEVER]).activations;
    assert_eq!(straight("eager 128 240 128 3 straight"), (0, (3 * 128) << 20));
    assert_eq!(straight("eager 128 240 20 8 straight"), ((8 * 20) << 20, 0));
    assert_eq!(straight("async 128 240 20 8 straight"), ((8 * 20) << 20, 0));
}

/// What does not fit into half of the reserve is no activation: it goes out, and what follows is still near.
#[test]
fn a_large_cache_leaves_the_reserve_to_what_comes_after_it() {
    let rig = Rig::new(&Shape::default());
    let ends = replay(&rig, "eager 128 240 2048 4 said", &[NEVER]);
    assert_eq!(ends.activations, (0, 8 << 30));
}

/// Every guess wrong: each request comes after a pause. The whole pool can be taken all the same, and so can every last byte when it is full.
#[test]
fn wrong_guesses_cost_no_memory() {
    let rig = Rig::new(&Shape::default());
    for pause in ["0", "1", "3600000"] {
        let mut tenant = rig.spawn_with("dlopen", &["everything"], &[("TARN_PAUSE_MS", pause)]);
        tenant.read_until("waiting");
        assert!(tenant.number("taken") * 100 >= tenant.number("free") * 99, "{pause}: {:?}", tenant.facts);
        assert_eq!(tenant.number("bad"), 0);
        tenant.say("go on");
        tenant.end();
    }
}
