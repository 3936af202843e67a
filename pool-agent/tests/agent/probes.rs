//! Links are proven by data.

use tarn_protocol::control::{FailReason, Phase, ProbeOrder};
use tarn_protocol::hardware::{LinkClass, LinkGrade, LinkProbe, ProbeOutcome};
use tarn_sim::Fault;

use crate::control_plane::eventually;
use crate::host::TestHost;

fn probes(host: &TestHost, count: usize) -> Vec<LinkProbe> {
    eventually("too few probes", || {
        host.control_plane.with(|ledger| (ledger.probes.len() >= count).then(|| ledger.probes.clone()))
    })
}

fn reason(probe: &LinkProbe) -> &str {
    match &probe.outcome {
        ProbeOutcome::Passed { .. } => "passed",
        ProbeOutcome::Failed { reason, .. } => reason,
    }
}

#[test]
fn every_ordered_pair_gets_the_grade_that_its_data_earned() {
    let mut host = TestHost::new("rtx4090-x8-seed").arguments(&["probe-on-start"]);
    host.start_agent(None);
    let found = probes(&host, 56);
    let of = |from: usize, to: usize| {
        let (from, to) = (host.card(from), host.card(to));
        found.iter().find(|probe| probe.from == from && probe.to == to).unwrap().clone()
    };
    let bridged = of(0, 1);
    assert_eq!((bridged.class, bridged.grade), (LinkClass::Nvlink, LinkGrade::A), "{bridged:?}");
    assert!(bridged.read_mb_per_second > 40_000 && bridged.latency_nanos > 0);
    let switched = of(0, 2);
    assert_eq!((switched.class, switched.grade), (LinkClass::PcieP2p, LinkGrade::B), "{switched:?}");
    assert_eq!(of(0, 2).outcome, ProbeOutcome::Passed { atomics_native: false });
    let across = of(0, 5);
    assert_eq!((across.class, across.grade, reason(&across)), (LinkClass::None, LinkGrade::D, "no_p2p"));
    assert_eq!(host.used_at_rest(), vec![0; 8]);
    let inventory = host.control_plane.with(|ledger| ledger.inventory.clone().unwrap());
    assert_eq!((inventory.gpus.len(), inventory.links.len()), (8, 56));
    assert!(inventory.gpus[0].pcie_switch.is_some());
}

#[test]
fn p3_a_stock_host_has_no_link_and_the_agent_lives() {
    let mut host = TestHost::new("rtx4090-x8-stock");
    host.start_agent(None);
    host.control_plane.order_probe(ProbeOrder { from: host.card(0), to: host.card(1) });
    let found = probes(&host, 1);
    assert_eq!((found[0].grade, reason(&found[0])), (LinkGrade::D, "no_p2p"));
    assert!(!host.agent_died());
}

#[test]
fn p1_writes_that_vanish_are_found_before_a_tenant_pays_for_them() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.sim.fault(Fault::P2pWritesVanish { from: 0, to: 1 }).unwrap();
    host.start_agent(None);
    host.control_plane.order_probe(ProbeOrder { from: host.card(0), to: host.card(1) });
    let found = probes(&host, 1);
    assert_eq!((found[0].grade, reason(&found[0])), (LinkGrade::D, "p2p_data_mismatch"), "{:?}", found[0]);
    let instance = host.instance(&[0, 1], &["/bin/sleep", "1000"]);
    host.control_plane.want(&instance);
    let phase = host
        .await_phase(&instance.instance_id, "never failed", |phase| matches!(phase, Phase::Failed { .. }));
    assert!(matches!(phase, Phase::Failed { reason: FailReason::P2pDataMismatch, .. }), "{phase:?}");
    host.control_plane.with(|ledger| assert!(ledger.usage.is_empty()));
    host.remove(&instance);
}

#[test]
fn p6_peer_access_that_fails_at_the_start_fails_the_pool_with_its_reason() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.sim.fault(Fault::P2pEnableFails { from: 0, to: 1 }).unwrap();
    host.start_agent(None);
    let instance = host.instance(&[0, 1], &["/bin/sleep", "1000"]);
    host.control_plane.want(&instance);
    let phase = host
        .await_phase(&instance.instance_id, "never failed", |phase| matches!(phase, Phase::Failed { .. }));
    let Phase::Failed { reason, detail, .. } = &phase else { unreachable!() };
    assert_eq!(*reason, FailReason::PoolVerifyFailed);
    assert!(detail.contains("p2p_enable_failed"), "{detail}");
    host.control_plane.with(|ledger| assert!(ledger.usage.is_empty()));
    host.remove(&instance);
}
