//! Paid time: enforced without the control plane, proven by evidence.

use tarn_agent::clock::HostClock;
use tarn_protocol::control::{DesiredInstance, Phase, RunUntil, StopReason};
use tarn_protocol::units::MonoMillis;

use crate::control_plane::eventually;
use crate::host::{TestHost, processes_with};

#[test]
fn r11_l15_paid_time_ends_on_time_with_the_control_plane_away() {
    let mut host = TestHost::new("rtx4090-x8-seed");
    host.start_agent(None);
    let clock = HostClock::open(None).unwrap();
    let instance = host.instance(&[0], &["/bin/sleep", "1000"]);
    host.control_plane.want(&instance);
    host.await_running(&instance);
    let until = MonoMillis::new(clock.now().get() + 4000);
    let run_until = Some(RunUntil { boot_id: clock.boot_id().clone(), mono_ms: until });
    host.control_plane.want(&DesiredInstance { run_until, ..instance.clone() });
    let revision = host.control_plane.with(|ledger| ledger.desired.revision);
    eventually("goal not taken in", || {
        host.control_plane.with(|ledger| (ledger.last.as_ref()?.desired_revision? >= revision).then_some(()))
    });
    host.control_plane.with(|ledger| ledger.away = true);
    host.kill_agent();
    host.start_agent(None);
    let sleeping = || !tarn_agent::process_mark::find_by_arguments(&["/bin/sleep", "1000"]).is_empty();
    assert!(sleeping(), "a lost control plane stops nothing");
    eventually("not stopped", || (!host_process(&host, &instance)).then_some(()));
    let late = clock.now().get().saturating_sub(until.get());
    assert!(clock.now() >= until && late < 3000, "{late} ms after what was paid");

    host.control_plane.with(|ledger| ledger.away = false);
    let phase =
        host.await_phase(&instance.instance_id, "never told", |phase| matches!(phase, Phase::Stopped { .. }));
    assert!(matches!(phase, Phase::Stopped { reason: StopReason::BalanceExhausted, .. }), "{phase:?}");
    let spans: Vec<(u64, u64)> = host.control_plane.with(|ledger| {
        ledger.usage.values().map(|found| (found.from_mono_ms.get(), found.to_mono_ms.get())).collect()
    });
    assert!(spans.windows(2).all(|pair| pair[0].1 == pair[1].0), "{spans:?}");
    let end = spans.last().unwrap().1;
    assert!(end.abs_diff(until.get()) <= 1000, "evidence ends {end}, paid until {until}");
    host.remove(&instance);
}

/// Whether anything of the instance still runs: the process that stands for it says so.
fn host_process(host: &TestHost, instance: &DesiredInstance) -> bool {
    let run_dir = host.state_dir().canonicalize().unwrap().join("run").join(instance.instance_id.as_str());
    !processes_with(run_dir.to_str().unwrap()).is_empty()
}
