//! Kill -9 of the agent and the broker, at every point, with an instance running.

use tarn_agent::failpoint::{INSTANCE_END, INSTANCE_LIFE};
use tarn_protocol::control::{DesiredInstance, Goal, Phase};

use crate::control_plane::eventually;
use crate::host::{TestHost, processes_with};

/// Appends a line at each start and lives on: two lines are two starts.
const COUNTING: [&str; 3] = ["/bin/sh", "-c", "echo started >> starts; exec sleep 1000"];

fn starts(host: &TestHost, instance: &DesiredInstance) -> usize {
    let text = std::fs::read_to_string(host.instance_dir(instance).join("home/starts")).unwrap_or_default();
    text.lines().count()
}

#[test]
fn an_agent_killed_at_any_point_of_a_start_comes_back_to_one_running_process() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    for name in INSTANCE_LIFE {
        let instance = host.instance(&[0, 1], &COUNTING);
        host.control_plane.want(&instance);
        host.start_agent(Some(name));
        for _ in 0..2400 {
            if host.agent_died() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(25));
        }
        assert!(host.agent_died(), "{name} was never passed");
        host.start_agent(None);
        host.await_running(&instance);
        eventually("no start", || (starts(&host, &instance) > 0).then_some(()));
        assert_eq!(starts(&host, &instance), 1, "{name}");
        host.remove(&instance);
        host.kill_agent();
        host.control_plane.with(|ledger| ledger.last = None);
    }
}

#[test]
fn an_agent_killed_at_any_point_of_an_end_finishes_it() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    for name in INSTANCE_END {
        // Deaf to SIGTERM, so that every way down is walked.
        let deaf = ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 1; done"];
        let instance = host.instance(&[0, 1], &deaf);
        host.control_plane.want(&instance);
        host.start_agent(Some(name));
        host.await_running(&instance);
        host.control_plane.want(&DesiredInstance { goal: Goal::Absent, ..instance.clone() });
        for _ in 0..2400 {
            if host.agent_died() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(25));
        }
        assert!(host.agent_died(), "{name} was never passed");
        host.start_agent(None);
        host.remove(&instance);
        assert_eq!(host.used_at_rest(), vec![0; 8], "{name}");
        host.kill_agent();
        host.control_plane.with(|ledger| ledger.last = None);
    }
}

#[test]
fn an_agent_killed_under_a_running_instance_never_touches_it() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let instance = host.instance(&[0, 1], &COUNTING);
    host.control_plane.want(&instance);
    host.await_running(&instance);
    eventually("no start", || (starts(&host, &instance) == 1).then_some(()));
    let socket = host.instance_dir(&instance).join("broker.sock");
    let broker = processes_with(socket.to_str().unwrap());
    for _ in 0..3 {
        host.kill_agent();
        host.control_plane.with(|ledger| ledger.last = None);
        host.start_agent(None);
        host.await_running(&instance);
    }
    assert_eq!(starts(&host, &instance), 1);
    assert_eq!(processes_with(socket.to_str().unwrap()), broker);
    host.control_plane.with(|ledger| {
        let mine = ledger.usage.values().filter(|evidence| evidence.instance_id == instance.instance_id);
        let spans: Vec<(u64, u64)> =
            mine.map(|found| (found.from_mono_ms.get(), found.to_mono_ms.get())).collect();
        // Restarts leave no gap while the same process lives, and nothing is claimed twice.
        assert!(spans.windows(2).all(|pair| pair[0].1 == pair[1].0), "{spans:?}");
    });
    host.remove(&instance);
}

#[test]
fn a_killed_broker_is_replaced_and_the_instance_lives_on() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let instance = host.instance(&[0, 1], &COUNTING);
    host.control_plane.want(&instance);
    host.await_running(&instance);
    let socket = host.instance_dir(&instance).join("broker.sock");
    let broker = processes_with(socket.to_str().unwrap());
    assert_eq!(broker.len(), 1);
    tarn_agent::process_mark::signal_pid(broker[0], rustix::process::Signal::KILL);
    eventually("no new broker", || {
        let now = processes_with(socket.to_str().unwrap());
        (now.len() == 1 && now != broker).then_some(())
    });
    host.await_phase(&instance.instance_id, "not running", |phase| matches!(phase, Phase::Running { .. }));
    assert_eq!(starts(&host, &instance), 1);
    host.remove(&instance);
}

#[test]
fn a_journal_that_cannot_be_read_ends_nothing_that_runs() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let instance = host.instance(&[0, 1], &COUNTING);
    host.control_plane.want(&instance);
    host.await_running(&instance);
    eventually("no start", || (starts(&host, &instance) == 1).then_some(()));
    host.kill_agent();
    host.control_plane.with(|ledger| ledger.last = None);
    let journal = host.state_dir().join("journal").join(format!("{}.json", instance.instance_id));
    std::fs::write(journal, "{ torn").unwrap();
    host.start_agent(None);
    host.await_running(&instance);
    assert_eq!(starts(&host, &instance), 1);
    host.remove(&instance);
    assert_eq!(host.used_at_rest(), vec![0; 8]);
}
