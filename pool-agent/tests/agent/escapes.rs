//! B10: a tenant who computes past our libraries on cards that nobody rented.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tarn_agent::clock::HostClock;
use tarn_protocol::control::{DesiredInstance, Escape, EscapeAction, GpuEvent, IdentifiedBy, Phase};
use tarn_protocol::units::Bytes;
use tarn_sim::Fault;

use crate::control_plane::eventually;
use crate::host::{TestHost, processes_with};

/// The program that opens the real driver, which lies beside the stand-in under another name.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent/escape.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("escape-{}", std::process::id()));
        let compiled = Command::new("cc").arg(source).arg("-o").arg(&program).arg("-ldl").status().unwrap();
        assert!(compiled.success());
        program
    })
}

fn real_driver(host: &TestHost, instance: &DesiredInstance) -> PathBuf {
    host.instance_dir(instance).join("lib/libcuda-real.so.1")
}

fn escape(host: &TestHost, instance: &DesiredInstance, how: &str) -> std::process::Output {
    let driver = real_driver(host, instance);
    let command = ["/usr/bin/env", "-i", program().to_str().unwrap(), driver.to_str().unwrap(), how];
    host.exec(instance, &command)
}

/// Escapes that were told of a card, oldest first.
fn told(host: &TestHost, card: usize) -> Vec<Escape> {
    let uuid = host.card(card);
    host.control_plane.with(|ledger| {
        let of_card = ledger.events.iter().filter(|event| event.uuid == uuid);
        of_card.filter_map(|event| event.escape.as_deref().cloned()).collect()
    })
}

fn event(host: &TestHost, beginning: &str) -> GpuEvent {
    eventually("not told", || {
        host.control_plane
            .with(|ledger| ledger.events.iter().find(|event| event.detail.starts_with(beginning)).cloned())
    })
}

fn pool(host: &TestHost, cards: &[usize]) -> DesiredInstance {
    let instance = host.instance(cards, &["/bin/sleep", "1000"]);
    host.control_plane.want(&instance);
    host.await_running(&instance);
    instance
}

fn runs(host: &TestHost, instance: &DesiredInstance) -> bool {
    matches!(host.control_plane.phase(&instance.instance_id), Some(Phase::Running { .. }))
}

#[test]
fn b10_who_opens_the_real_driver_on_a_donor_is_ended_with_evidence_and_nobody_else() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let instance = pool(&host, &[0, 1]);
    let neighbour = pool(&host, &[2, 3]);
    let clock = HostClock::open(None).unwrap();
    let before = clock.now();
    let ended = escape(&host, &instance, "hold");
    assert_eq!(ended.status.code(), Some(128 + 9), "{ended:?}");
    let output = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(output, "card=1 code=0\n", "it got its context, and no foreign card");

    let evidence = eventually("not told", || told(&host, 1).first().cloned());
    assert_eq!(evidence.instance_id.as_ref(), Some(&instance.instance_id));
    assert_eq!(evidence.action, EscapeAction::Killed);
    // At its first sight: with two looks a second, well within two seconds.
    assert!(evidence.samples == 1 && evidence.bytes >= Bytes::mib(420), "{evidence:?}");
    assert!(evidence.first_seen_mono_ms >= before && evidence.start_ticks.is_some());
    if evidence.identified_by == IdentifiedBy::Cgroup {
        let group = evidence.cgroup.unwrap();
        assert!(group.ends_with(instance.instance_id.as_str()), "{group}");
    } else {
        assert_eq!(evidence.identified_by, IdentifiedBy::PidNamespace);
    }
    assert!(runs(&host, &instance) && runs(&host, &neighbour), "what is paid for goes on");
    for card in [0, 2, 3] {
        assert_eq!(told(&host, card), [], "card {card}");
    }
    host.remove(&instance);
    host.remove(&neighbour);
}

#[test]
fn b10_by_policy_it_is_left_alone_and_told_from_first_to_last_sight() {
    let mut host = TestHost::new("rtx4090-x8-seed").arguments(&["--donor-escape", "bill"]);
    host.start_agent(None);
    let instance = pool(&host, &[0, 1]);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| escape(&host, &instance, "hold"));
        eventually("not told", || told(&host, 1).first().cloned());
        // Several looks later it is still there.
        let seen = host.control_plane.with(|ledger| ledger.last.as_ref().unwrap().seq.get());
        eventually("no further reports", || {
            host.control_plane.with(|ledger| (ledger.last.as_ref()?.seq.get() > seen + 2).then_some(()))
        });
        assert!(!running.is_finished());
        // Its own, by the driver that it names: other tests run the same program.
        for pid in processes_with(real_driver(&host, &instance).to_str().unwrap()) {
            tarn_agent::process_mark::signal_pid(pid, rustix::process::Signal::KILL);
        }
        running.join().unwrap();
    });
    let whole =
        eventually("not told to its end", || told(&host, 1).into_iter().find(|told| told.samples > 2));
    assert_eq!(whole.action, EscapeAction::Billed);
    assert!(whole.last_seen_mono_ms > whole.first_seen_mono_ms);
    assert!(runs(&host, &instance));
    host.remove(&instance);
}

#[test]
fn b10_lives_between_two_looks_are_in_the_drivers_accounting() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.sim.fault(Fault::Accounting { gpu: 1 }).unwrap();
    host.start_agent(None);
    // Its own probes are in the account too, and are none.
    let instance = pool(&host, &[0, 1]);
    let evidence = eventually("not told", || {
        let ended = escape(&host, &instance, "brief");
        assert!(matches!(ended.status.code(), Some(0 | 137)), "{ended:?}");
        told(&host, 1).into_iter().find(|told| told.identified_by == IdentifiedBy::Card)
    });
    assert_eq!(evidence.instance_id.as_ref(), Some(&instance.instance_id));
    assert_eq!((evidence.samples, evidence.action), (0, EscapeAction::Reported));
    assert!(evidence.bytes >= Bytes::mib(420), "{evidence:?}");
    host.remove(&instance);
}

#[test]
fn b10_a_donor_that_works_without_a_process_raises_an_alarm() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let instance = pool(&host, &[0, 1]);
    host.sim.fault(Fault::Load { gpu: 1, percent: 60 }).unwrap();
    let alarm = event(&host, "donor_busy");
    assert!(alarm.uuid == host.card(1) && alarm.detail.contains("60 %"), "{alarm:?}");
    assert!(runs(&host, &instance));
    host.remove(&instance);
}

#[test]
fn a_prohibited_donor_refuses_the_escape_itself_serves_the_pool_and_is_opened_again() {
    let mut host = TestHost::new("rtx4090-x8-seed").arguments(&["--donor-mode", "prohibited"]);
    host.start_agent(None);
    let mode = |card: usize| host.sim.state().unwrap().gpus[card].compute_mode;
    let witness = crate::host::artefact("tarn-witness");
    let fill = [witness.to_str().unwrap(), "--fill-percent", "70", "--block-gib", "4", "--json", "--hold"];
    let instance = host.instance(&[0, 1], &fill);
    host.control_plane.want(&instance);
    host.await_running(&instance);
    assert_eq!((mode(0), mode(1)), (0, 2));
    let log = eventually("never filled", || {
        host.control_plane.with(|ledger| {
            let log = ledger.logs.get(&instance.instance_id)?;
            log.contains("allocated_bytes").then(|| log.clone())
        })
    });
    assert!(log.contains("\"mismatches\":0"), "{log}");
    let refused = escape(&host, &instance, "brief");
    assert_eq!(String::from_utf8_lossy(&refused.stdout), "card=1 code=46\n");
    assert_eq!(told(&host, 1), [], "there was nothing to end");
    host.remove(&instance);
    assert_eq!((mode(0), mode(1)), (0, 0));
    assert_eq!(host.used(), vec![0; 8]);
    assert!(host.agent_log().contains("scrubbed"), "and was scrubbed");
}

#[test]
fn b10_the_check_for_real_cards_finds_the_one_outside_and_leaves_the_allowed_one_alone() {
    let host = TestHost::new("h200-x2");
    let output = Command::new(crate::host::artefact("tarn-agent"))
        .args(["guard-check", "--seconds", "120", "--card", host.card(1).as_str(), "--driver-dir"])
        .arg(host.sim.lib_dir())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let report: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{output:?}"));
    assert!(output.status.success() && report["passed"] == true, "{report:#}");
    assert_eq!(report["evidence"]["pid"], report["outside_pid"], "{report:#}");
    assert_eq!(report["evidence"]["action"], "killed");
    assert!(report["allowed_left_alone"] == true && report["gone_after_ms"].is_u64(), "{report:#}");
    let by_cgroup = report["cgroups"].as_array().is_some_and(|groups| !groups.is_empty());
    let by = if by_cgroup { "cgroup" } else { "pid_namespace" };
    assert_eq!(report["evidence"]["identified_by"], by, "{report:#}");
    assert_eq!(host.used_at_rest(), [0, 0]);
}
