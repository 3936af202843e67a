//! Where weights and activations end up, replayed as frameworks take them: by residency, not by time.
//!
//! `TARN_PAUSE_MS` is out of reach where the program itself says that it has loaded, so that a slow machine makes no pause of its own.

use std::time::Instant;

use tarn_protocol::units::Bytes;

use crate::rig::{Rig, Shape, Tenant, until};

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

/// Far bytes of the workspace, and of input and output of the three sizes.
fn products(story: &str, env: &[(&str, &str)]) -> [u64; 4] {
    let rig = Rig::new(&Shape::default());
    let words: Vec<&str> = story.split(' ').collect();
    let mut tenant = rig.spawn_program("loading", "dlopen", &words, env);
    tenant.end();
    assert_eq!(tenant.number("bad"), 0);
    assert!(tenant.number("weights_far") > 0, "{story}: the primary is full of weights");
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
    ["workspace_far", "far_1", "far_4", "far_16"].map(|fact| tenant.number(fact))
}

/// What nine tenths of a pool full of layers of 128 MiB do: the rest of the last weight's handle and of the workspace's are what inputs get.
#[test]
fn products_of_expandable_segments_work_on_the_primary() {
    for rest in ["said", "slept 1100"] {
        // What the last weight left of its handle goes to the workspace, to which distance means next to nothing.
        let [workspace, inputs @ ..] =
            products(&format!("products 128 240 8 {rest}"), &[("TARN_PAUSE_MS", "1000")]);
        assert!(workspace < 20 << 20, "{rest}: {workspace} bytes of the workspace are far");
        assert_eq!(inputs, [0; 3], "{rest}");
    }
    // Without a pause the largest pair cannot be told from weights; where the last weight fills no handle, its rest goes to the workspace.
    let [_, small, middle, _] = products("products 128 240 8 straight", &[NEVER]);
    assert_eq!((small, middle), (0, 0));
    let [workspace, inputs @ ..] = products("products 128 241 8 said", &[NEVER]);
    assert_eq!((workspace, inputs), (12 << 20, [0; 3]));
}

/// Layers that are opened by one or two handles are a model as well, and leave the reserve to what follows.
#[test]
fn bursts_of_a_few_handles_are_a_model_when_there_are_many() {
    near("expandable 32 1000 100 3 said", &[NEVER], Bytes::mib(3 * 100));
}

fn bursting(rig: &Rig, threads: u32, rounds: u32) -> Tenant {
    let story = ["bursts", "128", "240", &threads.to_string(), &rounds.to_string()];
    let mut tenant = rig.spawn_program("loading", "dlopen", &story, &[NEVER]);
    tenant.read_until("started=1");
    tenant
}

/// Handles are exchanged under every order of calls, by many threads, beside another tenant's process: no byte and no charge is lost.
#[test]
fn handles_are_exchanged_only_while_nobody_can_tell() {
    let rig = Rig::new(&Shape::default());
    let (mut one, mut other) = (bursting(&rig, 6, 40), bursting(&rig, 3, 40));
    for tenant in [&mut one, &mut other] {
        tenant.end();
        assert_eq!(tenant.number("bad"), 0);
    }
    assert!(one.number("near") > 20 && one.number("far") > 0, "{:?}", one.facts);
    let observer = rig.observer();
    until("nothing is leased", || {
        observer.donors().iter().all(|donor| donor.leased_bytes + donor.quarantined_bytes == 0)
    });
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
}

#[test]
fn a_broker_that_dies_while_handles_are_exchanged_costs_nobody_a_byte() {
    let mut rig = Rig::new(&Shape::default());
    let mut tenant = bursting(&rig, 4, 80);
    let mut victim = bursting(&rig, 4, 3000);
    for round in 0..5 {
        let start = Instant::now();
        until("time is up", || start.elapsed().as_millis() > 50 + 31 * round);
        rig.kill_broker();
        if round == 2 {
            victim.kill();
        }
        rig.start_broker(&[]);
    }
    tenant.end();
    assert_eq!(tenant.number("bad"), 0);
    let observer = rig.observer();
    until("nothing is leased", || {
        observer.donors().iter().all(|donor| donor.leased_bytes + donor.quarantined_bytes == 0)
    });
    until("the cards are empty", || rig.cards.iter().all(|&card| rig.used(card) == 0));
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
