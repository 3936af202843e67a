//! The whole life of an instance.

use std::os::unix::fs::PermissionsExt;

use tarn_protocol::control::{CardRole, DesiredInstance, FailReason, Goal, Phase, StopReason};
use tarn_protocol::units::{Bytes, Generation};

use crate::control_plane::eventually;
use crate::host::{TestHost, processes_with};

#[test]
fn a_pool_of_four_lives_and_leaves_nothing_behind() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    // By a path of this test's own, so that its processes are told from everyone else's.
    let witness = host.linked("tarn-witness");
    // Small fills keep the test's memory small: the pool's shape is what counts.
    let command = [witness.to_str().unwrap(), "--fill-percent", "1", "--block-gib", "1", "--json", "--hold"];
    let instance = host.instance(&[0, 1, 2, 3], &command);
    host.control_plane.want(&instance);
    host.await_running(&instance);
    assert!(!processes_with(witness.to_str().unwrap()).is_empty());

    let report = eventually("no residency", || {
        host.control_plane.with(|ledger| {
            let report = ledger.last.clone()?;
            let seen = report.instances.iter().find(|seen| seen.instance_id == instance.instance_id)?.clone();
            (seen.residency.len() == 4 && seen.residency[0].used_bytes > Bytes::mib(100)).then_some(seen)
        })
    });
    assert!(report.pool_bytes.unwrap() >= Bytes::gib(95), "{:?}", report.pool_bytes);
    assert_eq!(report.residency.iter().filter(|card| card.role == CardRole::Donor).count(), 3);
    let log = eventually("no output", || {
        host.control_plane
            .with(|ledger| ledger.logs.get(&instance.instance_id).filter(|log| log.contains('{')).cloned())
    });
    assert!(log.contains("total_bytes"), "{log}");

    host.control_plane.want(&DesiredInstance { goal: Goal::Stopped, ..instance.clone() });
    let stopped = host
        .await_phase(&instance.instance_id, "never stopped", |phase| matches!(phase, Phase::Stopped { .. }));
    assert!(matches!(stopped, Phase::Stopped { reason: StopReason::UserRequest, .. }), "{stopped:?}");
    assert_eq!(host.used_at_rest(), vec![0; 8]);
    assert!(host.instance_dir(&instance).join("home").exists());

    // The next generation runs in the same directory; the same one never again.
    let again = DesiredInstance { generation: Generation::new(2), ..instance.clone() };
    host.control_plane.want(&again);
    host.await_running(&again);
    host.remove(&again);
    assert_eq!(host.used_at_rest(), vec![0; 8]);
    assert!(processes_with(witness.to_str().unwrap()).is_empty());
}

#[test]
fn a_pool_may_overflow_into_what_the_operator_gives_and_reports_it_apart() {
    let tier = Bytes::gib(8);
    let mut host =
        TestHost::new("rtx4090-x8-seed").arguments(&["--host-tier-max", &(tier.get() + 4096).to_string()]);
    host.start_agent(None);
    let witness = host.linked("tarn-witness");
    let command = [witness.to_str().unwrap(), "--fill-percent", "1", "--block-gib", "1", "--json", "--hold"];
    let (pool, single) = (host.instance(&[0, 1], &command), host.instance(&[2], &command));
    for instance in [&pool, &single] {
        host.control_plane.want(instance);
        host.await_running(instance);
    }
    let seen = |instance: &DesiredInstance| {
        eventually("no residency", || {
            host.control_plane.with(|ledger| {
                let report = ledger.last.clone()?;
                let seen = report.instances.iter().find(|seen| seen.instance_id == instance.instance_id)?;
                (!seen.residency.is_empty()).then(|| seen.clone())
            })
        })
    };
    let shown = seen(&pool);
    let roles: Vec<CardRole> = shown.residency.iter().map(|card| card.role).collect();
    assert_eq!(roles, [CardRole::Primary, CardRole::Donor, CardRole::HostTier]);
    let cards: u64 = shown.residency[..2].iter().map(|card| card.capacity_bytes.get()).sum();
    assert_eq!(shown.pool_bytes, Some(Bytes::new(cards)), "the tier is in no total");
    let told = &shown.residency[2];
    assert_eq!(
        (told.capacity_bytes, told.used_bytes),
        (tier, Bytes::new(0)),
        "whole granules, unused while cards have room"
    );
    assert!(seen(&single).residency.iter().all(|card| card.role != CardRole::HostTier));
    for instance in [&pool, &single] {
        host.remove(instance);
    }
}

#[test]
fn l10_commands_that_end_fail_or_do_not_exist_are_told_apart() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let run = |command: &[&str]| {
        let instance = host.instance(&[0], command);
        host.control_plane.want(&instance);
        let phase = host.await_phase(&instance.instance_id, "never ended", |phase| {
            matches!(phase, Phase::Stopped { .. } | Phase::Failed { .. })
        });
        host.remove(&instance);
        phase
    };
    let ended = run(&["/bin/sh", "-c", "echo done"]);
    assert_eq!(ended, Phase::Stopped { reason: StopReason::CommandEnded, exit_code: Some(0) });
    let failed = run(&["/bin/sh", "-c", "exit 7"]);
    assert!(
        matches!(failed, Phase::Failed { reason: FailReason::CommandFailed, exit_code: Some(7), .. }),
        "{failed:?}"
    );
    let missing = run(&["/no/such/program"]);
    assert!(
        matches!(&missing, Phase::Failed { reason: FailReason::CommandFailed, detail, .. } if detail.contains("/no/such/program")),
        "{missing:?}"
    );
}

#[test]
fn a_host_joins_once_and_keeps_its_identity() {
    let mut host = TestHost::new("h200-x2");
    host.start_agent(None);
    eventually("no report", || host.control_plane.with(|ledger| ledger.last.is_some().then_some(())));
    host.kill_agent();
    host.control_plane.with(|ledger| ledger.last = None);
    host.start_agent(None);
    eventually("no report", || host.control_plane.with(|ledger| ledger.last.is_some().then_some(())));
    host.control_plane.with(|ledger| {
        assert_eq!(ledger.joins.len(), 1);
        let numbers: Vec<u64> = ledger.reports.iter().map(|(_, seq)| *seq).collect();
        assert!(numbers.windows(2).all(|pair| pair[1] > pair[0]), "{numbers:?}");
    });
    let identity = host.state_dir().join("identity.json");
    assert_eq!(std::fs::metadata(identity).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!host.agent_log().contains("credential-of-the-host"));
}
