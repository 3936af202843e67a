//! What links do to data and to measured time.

use crate::driver::bench::{Bench, Facts, number};
use tarn_sim::Fault;

const ADDITIONS: i64 = 16 * 64 * 4;

fn probe(bench: &Bench, peer: usize) -> Facts {
    let ptx = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocol/src/probe.ptx");
    bench.run("link", &[ptx, &peer.to_string()])
}

fn check(facts: &Facts, expected: &[(&str, i64)]) {
    for (name, value) in expected {
        assert_eq!(number(facts, name), *value, "{name} in {facts:?}");
    }
}

#[test]
fn a_sound_nvlink_pair_passes_every_probe_at_its_bandwidth() {
    let facts = probe(&Bench::new("rtx4090-x8-seed"), 1);
    check(
        &facts,
        &[("can", 1), ("mapped", 0), ("write", 0), ("read", 0), ("mismatches", 0), ("sum", ADDITIONS)],
    );
    assert!((49_000..=52_000).contains(&number(&facts, "mbps")), "{facts:?}");
}

#[test]
fn pcie_peers_are_slower_and_lose_atomic_updates() {
    let facts = probe(&Bench::new("rtx4090-x8-seed"), 2);
    check(&facts, &[("can", 1), ("mapped", 0), ("mismatches", 0)]);
    assert!(number(&facts, "sum") < ADDITIONS);
    assert!((22_000..=24_400).contains(&number(&facts, "mbps")), "{facts:?}");
}

#[test]
fn p1_writes_vanish_while_every_call_succeeds() {
    let bench = Bench::new("rtx4090-x8-seed");
    bench.host.fault(Fault::P2pWritesVanish { from: 0, to: 1 }).unwrap();
    let facts = probe(&bench, 1);
    check(&facts, &[("can", 1), ("mapped", 0), ("write", 0), ("read", 0), ("add", 0), ("sum", 0)]);
    assert_eq!(number(&facts, "mismatches"), 16 << 18);
    bench.host.fault(Fault::Clear).unwrap();
    check(&probe(&bench, 1), &[("mismatches", 0)]);
}

#[test]
fn p3_a_stock_driver_has_no_peer_access() {
    let facts = probe(&Bench::new("rtx4090-x8-stock"), 1);
    check(&facts, &[("can", 0), ("mapped", 217)]);
}

#[test]
fn p6_enabling_fails_although_the_capability_says_yes() {
    let bench = Bench::new("rtx4090-x8-seed");
    bench.host.fault(Fault::P2pEnableFails { from: 0, to: 1 }).unwrap();
    check(&probe(&bench, 1), &[("can", 1), ("mapped", 217)]);
}

#[test]
fn a_degraded_link_measures_slower_and_a_lost_one_is_no_link() {
    let bench = Bench::new("rtx4090-x8-seed");
    bench.host.fault(Fault::LinkDegrade { from: 0, to: 1, percent: 75 }).unwrap();
    assert!((12_000..=13_100).contains(&number(&probe(&bench, 1), "mbps")));
    bench.host.fault(Fault::AtomicsMissing { from: 0, to: 1 }).unwrap();
    assert!(number(&probe(&bench, 1), "sum") < ADDITIONS);
    bench.host.fault(Fault::LinkLost { from: 0, to: 1 }).unwrap();
    check(&probe(&bench, 1), &[("can", 0), ("mapped", 217)]);
}
