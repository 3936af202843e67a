//! Older goals, older epochs and other boots act on nothing.

use tarn_protocol::control::{DesiredInstance, Goal, InstanceSpec, Phase};
use tarn_protocol::ids::{GpuUuid, LeaseId};
use tarn_protocol::units::{Generation, Timestamp};

use crate::control_plane::eventually;
use crate::host::{TestHost, processes_with};

/// Waits until the agent has journaled the document that is now wanted.
fn taken_in(host: &TestHost) {
    let revision = host.control_plane.with(|ledger| ledger.desired.revision);
    eventually("document not taken in", || {
        host.control_plane.with(|ledger| (ledger.last.as_ref()?.desired_revision? >= revision).then_some(()))
    });
}

#[test]
fn r2_lower_generations_and_epochs_change_nothing() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let instance =
        DesiredInstance { generation: Generation::new(5), ..host.instance(&[0], &["/bin/sleep", "1000"]) };
    host.control_plane.want(&instance);
    host.await_running(&instance);

    let older = DesiredInstance { generation: Generation::new(4), goal: Goal::Absent, ..instance.clone() };
    host.control_plane.want(&older);
    taken_in(&host);
    assert!(matches!(host.control_plane.phase(&instance.instance_id), Some(Phase::Running { .. })));

    host.control_plane.with(|ledger| ledger.desired.host_epoch = Generation::new(3));
    host.control_plane.want(&instance);
    taken_in(&host);
    host.control_plane.with(|ledger| ledger.desired.host_epoch = Generation::new(2));
    let before = host.control_plane.with(|ledger| ledger.last.as_ref().unwrap().seq);
    host.control_plane.want(&DesiredInstance { goal: Goal::Absent, ..instance.clone() });
    eventually("no further reports", || {
        host.control_plane.with(|ledger| (ledger.last.as_ref()?.seq.get() > before.get() + 2).then_some(()))
    });
    assert!(matches!(host.control_plane.phase(&instance.instance_id), Some(Phase::Running { .. })));
    host.control_plane.with(|ledger| ledger.desired.host_epoch = Generation::new(3));
    host.remove(&instance);
}

#[test]
fn an_instance_of_another_boot_has_failed_with_the_host() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let instance = host.instance(&[0], &["/bin/sleep", "1000"]);
    host.control_plane.want(&instance);
    host.await_running(&instance);
    host.kill_agent();
    // A host that restarts takes its processes along.
    let run_dir = host.state_dir().canonicalize().unwrap().join("run").join(instance.instance_id.as_str());
    for pid in processes_with(run_dir.to_str().unwrap()) {
        tarn_agent::process_mark::signal_pid(pid, rustix::process::Signal::KILL);
    }
    let mut host = host.arguments(&["--boot-id", "another-boot"]);
    host.start_agent(None);
    let phase = host
        .await_phase(&instance.instance_id, "never failed", |phase| matches!(phase, Phase::Failed { .. }));
    assert!(matches!(&phase, Phase::Failed { detail, .. } if detail.contains("restarted")), "{phase:?}");
    host.remove(&instance);
}

/// A control plane whose data was restored knows neither lease nor cards of what it wants gone: the host's own journal does.
#[test]
fn r6_a_goal_that_names_no_cards_still_removes_everything() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let witness = host.linked("tarn-witness");
    let command = [witness.to_str().unwrap(), "--fill-percent", "1", "--block-gib", "1", "--json", "--hold"];
    let instance = host.instance(&[0, 1], &command);
    let neighbour = host.instance(&[2], &["/bin/sleep", "1000"]);
    for wanted in [&instance, &neighbour] {
        host.control_plane.want(wanted);
        host.await_running(wanted);
    }
    let spec = InstanceSpec {
        command: vec![],
        env: vec![],
        primary: GpuUuid::from_bytes([0; 16]),
        donors: vec![],
        ..instance.spec.clone()
    };
    let lease_id = LeaseId::new(Timestamp::from_micros(7), 0);
    host.remove(&DesiredInstance { lease_id, spec, ..instance.clone() });
    assert!(processes_with(witness.to_str().unwrap()).is_empty());
    assert!(matches!(host.control_plane.phase(&neighbour.instance_id), Some(Phase::Running { .. })));
    host.remove(&neighbour);
    assert_eq!(host.used_at_rest(), vec![0; 8]);
}
