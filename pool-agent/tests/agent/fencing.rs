//! Older goals, older epochs and other boots act on nothing.

use tarn_protocol::control::{DesiredInstance, Goal, Phase};
use tarn_protocol::units::Generation;

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
