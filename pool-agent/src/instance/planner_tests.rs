use super::*;
use proptest::prelude::*;
use tarn_protocol::control::{Goal, RunUntil};
use tarn_protocol::ids::InstanceId;
use tarn_protocol::units::{Generation, Timestamp};

use crate::instance::samples;
use crate::process_mark::ProcessMark;

fn wanted(generation: i64, goal: Goal) -> DesiredInstance {
    samples::desired(InstanceId::new(Timestamp::from_micros(0), 1), Generation::new(generation), goal)
}

fn mark() -> ProcessMark {
    ProcessMark { pid: 10, start_ticks: 20 }
}

fn record(stage: Stage) -> InstanceRecord {
    let wanted = wanted(1, Goal::Running);
    InstanceRecord {
        instance_id: wanted.instance_id,
        generation: wanted.generation,
        lease_id: wanted.lease_id,
        spec: wanted.spec,
        boot_id: BootId::new("boot"),
        pool_bytes: None,
        launches: 0,
        stage,
    }
}

fn running() -> Stage {
    Stage::Running { broker: Some(mark()), process: mark(), ready_mono_ms: MonoMillis::new(5) }
}

fn facts(process: ProcessFact) -> Facts {
    Facts {
        now: MonoMillis::new(1000),
        boot_id: BootId::new("boot"),
        broker_alive: true,
        process,
        fallen: None,
        drain_ms: 100,
    }
}

fn balance() -> Outcome {
    Outcome::Stopped { reason: StopReason::BalanceExhausted, exit_code: None }
}

fn paid_until(boot: &str, at: u64) -> DesiredInstance {
    let run_until = Some(RunUntil { boot_id: BootId::new(boot), mono_ms: MonoMillis::new(at) });
    DesiredInstance { run_until, ..wanted(1, Goal::Running) }
}

#[test]
fn a_running_instance_is_left_alone_until_goal_money_or_cards_end_it() {
    let alive = facts(ProcessFact::Alive);
    let plan = |goal: &DesiredInstance, facts: &Facts| next(&record(running()), Some(goal), facts);
    assert_eq!(plan(&wanted(1, Goal::Running), &alive), Step::Wait);
    assert_eq!(plan(&paid_until("boot", 1001), &alive), Step::Wait);
    assert_eq!(plan(&paid_until("boot", 1000), &alive), Step::Stop(balance()));
    assert_eq!(plan(&paid_until("other", 1), &alive), Step::Wait);
    assert_eq!(plan(&wanted(1, Goal::Stopped), &alive), Step::Stop(USER_REQUEST));
    assert_eq!(plan(&wanted(2, Goal::Running), &alive), Step::Stop(USER_REQUEST));
    let fell = Facts { fallen: Some(Outcome::failed(FailReason::PeerLost, "x")), ..alive.clone() };
    assert_eq!(
        plan(&wanted(1, Goal::Running), &fell),
        Step::Stop(Outcome::failed(FailReason::PeerLost, "x"))
    );
    let lonely = Facts { broker_alive: false, ..alive.clone() };
    assert_eq!(plan(&wanted(1, Goal::Running), &lonely), Step::ReviveBroker);
    assert_eq!(next(&record(running()), None, &alive), Step::Wait);
}

#[test]
fn a_broker_is_started_for_donors_and_for_a_cap_and_not_for_a_whole_card() {
    use tarn_protocol::units::Bytes;
    let alone = facts(ProcessFact::NotStarted { waiting: false });
    let plan = |cap_bytes| {
        let mut prepared = record(Stage::Prepared);
        prepared.spec.cap_bytes = cap_bytes;
        next(&prepared, Some(&wanted(1, Goal::Running)), &alone)
    };
    assert_eq!(plan(None), Step::Launch);
    assert_eq!(plan(Some(Bytes::gib(6))), Step::StartBroker, "its processes are held to one cap together");
}

#[test]
fn an_ended_generation_is_never_started_again() {
    let ended = |outcome| record(Stage::Ended { outcome });
    let gone = facts(ProcessFact::NotStarted { waiting: false });
    for outcome in [balance(), USER_REQUEST, Outcome::failed(FailReason::CommandFailed, "")] {
        assert_eq!(next(&ended(outcome.clone()), Some(&wanted(1, Goal::Running)), &gone), Step::Wait);
        assert_eq!(next(&ended(outcome.clone()), Some(&wanted(2, Goal::Running)), &gone), Step::Begin);
        assert_eq!(next(&ended(outcome), Some(&wanted(1, Goal::Absent)), &gone), Step::Remove);
    }
}

#[test]
fn a_launch_that_died_at_the_gate_is_repeated_a_few_times_and_then_the_hosts_fault() {
    let launched = Stage::Launched { broker: None, process: mark() };
    let goal = wanted(1, Goal::Running);
    let dead = facts(ProcessFact::NotStarted { waiting: false });
    assert_eq!(next(&record(launched.clone()), Some(&goal), &dead), Step::Launch);
    let tired = InstanceRecord { launches: LAUNCHES_MAX, ..record(launched.clone()) };
    assert!(matches!(next(&tired, Some(&goal), &dead), Step::Clean(Outcome::Failed { .. })));
    let waiting = facts(ProcessFact::NotStarted { waiting: true });
    assert_eq!(next(&record(launched.clone()), Some(&goal), &waiting), Step::Wait);
    assert_eq!(next(&record(launched), Some(&goal), &facts(ProcessFact::Alive)), Step::Confirm);
}

#[test]
fn a_restarted_host_ends_what_ran_and_keeps_what_had_not_begun() {
    let other = Facts { boot_id: BootId::new("new"), ..facts(ProcessFact::NotStarted { waiting: false }) };
    let goal = wanted(1, Goal::Running);
    assert!(matches!(next(&record(running()), Some(&goal), &other), Step::End(Outcome::Failed { .. })));
    assert_eq!(next(&record(Stage::Idle), Some(&goal), &other), Step::Prepare);
    let cleaning = Stage::Cleaning { broker: None, outcome: balance() };
    assert_eq!(next(&record(cleaning), Some(&goal), &other), Step::End(balance()));
}

fn any_stage() -> impl Strategy<Value = Stage> {
    let stopping = |killed| Stage::Stopping {
        broker: None,
        process: mark(),
        outcome: USER_REQUEST,
        since: MonoMillis::new(950),
        killed,
    };
    prop_oneof![
        Just(Stage::Idle),
        Just(Stage::Prepared),
        Just(Stage::BrokerStarting),
        Just(Stage::BrokerUp { broker: mark() }),
        Just(Stage::Launching { broker: Some(mark()) }),
        Just(Stage::Launched { broker: Some(mark()), process: mark() }),
        Just(running()),
        Just(stopping(false)),
        Just(stopping(true)),
        Just(Stage::Cleaning { broker: None, outcome: USER_REQUEST }),
        Just(Stage::Ended { outcome: USER_REQUEST }),
    ]
}

fn any_process() -> impl Strategy<Value = ProcessFact> {
    prop_oneof![
        Just(ProcessFact::Alive),
        Just(ProcessFact::NotStarted { waiting: false }),
        Just(ProcessFact::NotStarted { waiting: true }),
        Just(ProcessFact::Gone { exit_code: Some(0), out_of_memory: false }),
        Just(ProcessFact::Gone { exit_code: None, out_of_memory: false }),
    ]
}

proptest! {
    /// Whatever the journal says: a process that lives is never launched over, and only an absent goal removes.
    #[test]
    fn nothing_alive_is_started_twice(
        stage in any_stage(), process in any_process(), goal in 0u8..3, generation in 1i64..3, broker_alive: bool,
    ) {
        let goal = [Goal::Running, Goal::Stopped, Goal::Absent][usize::from(goal)];
        let facts = Facts { broker_alive, ..facts(process) };
        let record = record(stage.clone());
        let step = next(&record, Some(&wanted(generation, goal)), &facts);
        if matches!(step, Step::Launch) {
            prop_assert_eq!(goal, Goal::Running);
            let never_ran = ProcessFact::NotStarted { waiting: false };
            prop_assert!(stage.process().is_none() || process == never_ran);
        }
        if step == Step::Remove {
            prop_assert_eq!(goal, Goal::Absent);
            prop_assert!(stage.process().is_none() && stage.broker().is_none());
        }
        if stage.process().is_some() && process == ProcessFact::Alive {
            prop_assert!(!matches!(step, Step::Clean(_) | Step::End(_) | Step::Begin | Step::Finish(_)));
        }
    }
}
