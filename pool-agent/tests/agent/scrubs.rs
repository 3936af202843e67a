//! H15, H8: what a tenant left is gone before the next one comes, and a card that cannot be cleaned serves nobody.

use std::process::Command;

use tarn_protocol::control::{DesiredInstance, Phase};
use tarn_protocol::hardware::GpuHealth;
use tarn_sim::Fault;

use crate::control_plane::eventually;
use crate::host::{TestHost, artefact};

/// Fills the pool and stays until it is stopped.
fn full_pool(host: &TestHost, cards: &[usize]) -> DesiredInstance {
    let witness = artefact("tarn-witness");
    // Small blocks of it: the pool's shape is what counts, and the donors get some.
    let fill = [witness.to_str().unwrap(), "--fill-percent", "60", "--block-gib", "4", "--json", "--hold"];
    let instance = host.instance(cards, &fill);
    host.control_plane.want(&instance);
    host.await_running(&instance);
    eventually("never filled", || {
        host.control_plane.with(|ledger| {
            let log = ledger.logs.get(&instance.instance_id)?;
            log.contains("allocated_bytes").then_some(())
        })
    });
    instance
}

/// Bytes of a card that are not zero for whoever gets it next: the scrubber's own look, by itself.
fn look(host: &TestHost, card: usize) -> serde_json::Value {
    let output = Command::new(artefact("tarn-agent"))
        .args(["scrub-card", "--card", host.card(card).as_str()])
        .env("CUDA_VISIBLE_DEVICES", host.card(card).as_str())
        .env("LD_LIBRARY_PATH", host.sim.lib_dir())
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

fn keep_freed(host: &TestHost, cards: &[usize]) {
    for gpu in cards {
        host.sim.fault(Fault::KeepsFreed { gpu: *gpu }).unwrap();
    }
}

#[test]
fn h15_a_driver_that_does_not_scrub_shows_the_next_tenant_nothing() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    keep_freed(&host, &[0, 1, 2]);
    host.start_agent(None);
    let instance = full_pool(&host, &[0, 1]);
    host.remove(&instance);
    let log = host.agent_log();
    assert_eq!(log.matches("scrubbed").count(), 2, "both cards, once");
    assert_eq!(log.matches("the driver gave memory that was not zero").count(), 2, "{log}");
    assert!(log.contains("mb_per_second"), "the rate is told");
    for card in [0, 1] {
        let seen = look(&host, card);
        assert_eq!((&seen["dirty_bytes"], &seen["unclean_bytes"]), (&0.into(), &0.into()), "{seen}");
        assert!(seen["bytes"].as_u64().unwrap() > 22 << 30, "all but the context: {seen}");
        assert!(seen["left_bytes"].as_u64().unwrap() < 1 << 30, "{seen}");
    }
    assert_eq!(host.used(), vec![0; 8]);
}

#[test]
fn h15_without_a_scrub_the_same_card_would_have_shown_it() {
    // The control of the test above: no agent, so nobody scrubs.
    let host = TestHost::new("rtx4090-x8-seed");
    keep_freed(&host, &[3]);
    let fill = Command::new(artefact("tarn-witness"))
        .args(["--fill-percent", "60", "--block-gib", "4", "--json"])
        .env("CUDA_VISIBLE_DEVICES", host.card(3).as_str())
        .env("LD_LIBRARY_PATH", host.sim.lib_dir())
        .output()
        .unwrap();
    assert!(fill.status.success(), "{fill:?}");
    let first = look(&host, 3);
    assert!(first["dirty_bytes"].as_u64().unwrap() > 0, "{first}");
    assert_eq!(look(&host, 3)["dirty_bytes"], 0, "and once is enough");
}

#[test]
fn h8_a_card_that_cannot_be_scrubbed_is_kept_out_of_every_placement() {
    let mut host = TestHost::new("rtx4090-x8-seed").arguments(&["--scrub-deadline-seconds", "3"]);
    host.start_agent(None);
    let instance = host.instance(&[0, 1], &["/bin/sleep", "1000"]);
    host.control_plane.want(&instance);
    host.await_running(&instance);
    // Its allocations hang, so the scrubber is late; the card's neighbour is clean.
    host.sim.fault(Fault::SlowAlloc { gpu: 1, milliseconds: 60_000 }).unwrap();
    host.remove(&instance);
    let health = |card: usize| {
        let uuid = host.card(card);
        host.control_plane.with(|ledger| {
            let gpus = &ledger.inventory.as_ref()?.gpus;
            Some(gpus.iter().find(|gpu| gpu.uuid == uuid)?.health.clone())
        })
    };
    let kept = eventually("not kept out", || health(1).filter(|health| !health.accepts_placement()));
    assert!(
        matches!(&kept, GpuHealth::Drain { reason } if reason.contains("did not end within")),
        "{kept:?}"
    );
    assert_eq!(health(0), Some(GpuHealth::Ok));
    host.control_plane.with(|ledger| {
        let uuid = host.card(1);
        let told = ledger.events.iter().filter(|event| event.uuid == uuid);
        assert!(told.clone().any(|event| event.detail.contains("not scrubbed")), "{:?}", ledger.events);
    });
    // Others go on.
    let next = host.instance(&[0, 2], &["/bin/sleep", "1000"]);
    host.control_plane.want(&next);
    host.await_running(&next);
    assert!(matches!(host.control_plane.phase(&next.instance_id), Some(Phase::Running { .. })));
    host.remove(&next);
}
