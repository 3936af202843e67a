//! State files that are torn, emptied or gone: the agent goes on where that is safe, and says what to do where it is not.

use std::process::Command;

use tarn_protocol::control::{DesiredInstance, Goal};

use crate::control_plane::eventually;
use crate::host::{TestHost, artefact};

fn running(host: &TestHost) -> DesiredInstance {
    let instance = host.instance(&[0, 1], &["/bin/sleep", "1000"]);
    host.control_plane.want(&instance);
    host.await_running(&instance);
    eventually("nothing acknowledged", || {
        host.control_plane.with(|ledger| (ledger.usage.len() > 2).then_some(()))
    });
    instance
}

fn restart(host: &mut TestHost) {
    host.control_plane.with(|ledger| ledger.last = None);
    host.start_agent(None);
}

#[test]
fn one_damaged_text_of_anything_stops_nothing() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let instance = running(&host);
    let last = host.control_plane.with(|ledger| ledger.reports.last().unwrap().1);
    host.kill_agent();
    for name in ["identity.json", "fence.json", "report_seq.json", "health.json"] {
        std::fs::write(host.state_dir().join(name), "{ torn").unwrap();
    }
    restart(&mut host);
    host.await_running(&instance);
    host.control_plane.with(|ledger| {
        assert_eq!(ledger.joins.len(), 1, "it is the same host");
        let newest = ledger.reports.last().unwrap().1;
        assert!(newest > last, "report {newest} after {last} would be no news");
    });
    host.remove(&instance);
}

#[test]
fn both_texts_of_an_identity_gone_is_one_line_with_the_way_on_and_the_way_works() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let instance = running(&host);
    host.remove(&instance);
    host.kill_agent();
    for name in ["identity.json", "identity.copy"] {
        std::fs::write(host.state_dir().join(name), "").unwrap();
    }
    host.start_agent(None);
    eventually("it goes on with a damaged identity", || host.agent_died().then_some(()));
    let log = host.agent_log();
    let line = log.lines().last().unwrap();
    assert!(
        line.contains("identity.json and its copy are damaged") && line.contains("tarn-agent rejoin"),
        "{line}"
    );
    let output = Command::new(artefact("tarn-agent"))
        .args(["rejoin", "--state-dir"])
        .arg(host.state_dir())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("identity.json, identity.copy"), "{output:?}");
    // A new token: to this control plane, whoever comes next is a new host.
    host.control_plane.with(|ledger| ledger.joins.clear());
    restart(&mut host);
    eventually("not joined anew", || host.control_plane.with(|ledger| ledger.last.is_some().then_some(())));
    host.control_plane.with(|ledger| assert_eq!(ledger.joins.len(), 1));
}

#[test]
fn lost_usage_evidence_is_told_and_what_runs_is_claimed_again_from_its_start() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let ended = host.instance(&[4], &["/bin/true"]);
    host.control_plane.want(&DesiredInstance { goal: Goal::Running, ..ended.clone() });
    let instance = running(&host);
    let (first, highest) = host.control_plane.with(|ledger| {
        let mine = ledger.usage.values().filter(|found| found.instance_id == instance.instance_id);
        (mine.map(|found| found.from_mono_ms).min().unwrap(), *ledger.usage.keys().last().unwrap())
    });
    host.kill_agent();
    std::fs::remove_file(host.state_dir().join("usage.jsonl")).unwrap();
    restart(&mut host);
    host.await_running(&instance);
    let again = eventually("not claimed again", || {
        host.control_plane.with(|ledger| {
            let mut later = ledger.usage.range(highest + 1..).map(|(_, found)| found);
            later.find(|found| found.instance_id == instance.instance_id).cloned()
        })
    });
    assert_eq!(again.from_mono_ms, first, "all of it: the control plane counts no millisecond twice");
    host.control_plane.with(|ledger| {
        let told: Vec<_> =
            ledger.events.iter().filter(|event| event.detail.starts_with("usage_lost")).collect();
        let of = |id: &str, what: &str| {
            told.iter().any(|event| event.detail.contains(id) && event.detail.contains(what))
        };
        assert!(of(instance.instance_id.as_str(), "claimed again"), "{told:?}");
        assert!(of(ended.instance_id.as_str(), "stays unbilled"), "{told:?}");
    });
    host.remove(&instance);
    host.remove(&ended);
}
