//! Cards that hang, fault or are lost.

use std::time::Instant;

use tarn_protocol::control::{FailReason, Phase};
use tarn_protocol::hardware::GpuHealth;
use tarn_sim::Fault;

use crate::control_plane::eventually;
use crate::host::TestHost;

fn health(host: &TestHost, card: usize) -> Option<GpuHealth> {
    let uuid = host.card(card);
    host.control_plane.with(|ledger| {
        let gpus = &ledger.inventory.as_ref()?.gpus;
        Some(gpus.iter().find(|gpu| gpu.uuid == uuid)?.health.clone())
    })
}

#[test]
#[allow(clippy::disallowed_methods)] // measures the agent, outside of it
fn h3_one_hung_card_delays_no_other() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    eventually("no inventory", || health(&host, 3));
    host.sim.fault(Fault::HungNvml { gpu: 3, milliseconds: 20_000 }).unwrap();
    eventually("not unresponsive", || {
        matches!(health(&host, 3), Some(GpuHealth::Unresponsive { .. })).then_some(())
    });
    let start = Instant::now();
    let first = host.control_plane.with(|ledger| ledger.last.as_ref().unwrap().seq.get());
    eventually("no reports", || {
        host.control_plane.with(|ledger| (ledger.last.as_ref()?.seq.get() >= first + 3).then_some(()))
    });
    assert!(start.elapsed().as_secs() < 12, "{:?} for three reports", start.elapsed());
    host.control_plane.with(|ledger| {
        let telemetry = &ledger.last.as_ref().unwrap().telemetry;
        assert_eq!(telemetry.iter().filter(|card| card.responsive).count(), 7);
    });
    assert!(!host.agent_died());
}

#[test]
fn h1_an_application_xid_tells_and_a_hardware_xid_stops_and_lasts() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let instance = host.instance(&[0, 1], &["/bin/sleep", "1000"]);
    host.control_plane.want(&instance);
    host.await_running(&instance);
    host.sim.fault(Fault::Xid { gpu: 0, code: 31 }).unwrap();
    eventually("xid not told", || {
        host.control_plane.with(|ledger| ledger.events.iter().any(|event| event.xid == 31).then_some(()))
    });
    assert!(matches!(host.control_plane.phase(&instance.instance_id), Some(Phase::Running { .. })));
    assert_eq!(health(&host, 0), Some(GpuHealth::Ok));
    host.sim.fault(Fault::Xid { gpu: 1, code: 48 }).unwrap();
    let phase = host
        .await_phase(&instance.instance_id, "never failed", |phase| matches!(phase, Phase::Failed { .. }));
    assert!(matches!(phase, Phase::Failed { reason: FailReason::PeerLost, .. }), "{phase:?}");
    host.kill_agent();
    host.control_plane.with(|ledger| ledger.inventory = None);
    host.start_agent(None);
    let after = eventually("no inventory", || health(&host, 1));
    assert!(matches!(after, GpuHealth::Drain { .. }), "{after:?}");
    host.remove(&instance);
}
