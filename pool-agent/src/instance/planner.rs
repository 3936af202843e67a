//! The next step of an instance, as a pure function of its journal, its goal and the facts.
//!
//! Every step may be repeated: whoever dies in the middle of one finds the journal either before or after it.

use tarn_protocol::control::{DesiredInstance, FailReason, Goal, StopReason};
use tarn_protocol::units::{BootId, MonoMillis};

use super::record::{InstanceRecord, Outcome, Stage};

/// A command whose launch died this often before it ran is the host's fault.
pub const LAUNCHES_MAX: u32 = 3;

/// What the worker just observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub now: MonoMillis,
    pub boot_id: BootId,
    pub broker_alive: bool,
    pub process: ProcessFact,
    /// A card of the pool on which nothing may go on.
    pub fallen: Option<Outcome>,
    /// How long the instance gets between SIGTERM and SIGKILL.
    pub drain_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessFact {
    /// No process belongs to this stage, or it has no sign of life or end: it waits at the gate or never passed it.
    NotStarted { waiting: bool },
    /// The command is running.
    Alive,
    /// The command ran and is gone with everything it started.
    Gone { exit_code: Option<i32>, out_of_memory: bool },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Nothing to do until something changes.
    Wait,
    /// Take the wanted generation as the one that this journal is about.
    Begin,
    /// Verify the pool's links, write directory and pool config.
    Prepare,
    /// Start the broker or take over the one that is there; wait until it is ready.
    StartBroker,
    /// The broker died under a running instance: start another on the same ledger.
    ReviveBroker,
    /// Start the process at its gate, write it down, open the gate.
    Launch,
    /// The command is seen running.
    Confirm,
    /// Begin to stop for this reason.
    Stop(Outcome),
    Kill,
    /// The process is gone: this is how it ended.
    Finish(Outcome),
    /// Stop the broker, see the cards' memory come back.
    Clean(Outcome),
    /// Nothing runs and nothing ever will in this generation.
    End(Outcome),
    /// Remove everything.
    Remove,
}

const USER_REQUEST: Outcome = Outcome::Stopped { reason: StopReason::UserRequest, exit_code: None };

/// `wanted` is `None` for a leftover that nobody asked about: it is kept as it is.
pub fn next(record: &InstanceRecord, wanted: Option<&DesiredInstance>, facts: &Facts) -> Step {
    let other_boot = record.boot_id != facts.boot_id;
    if other_boot && !matches!(record.stage, Stage::Idle | Stage::Ended { .. }) {
        return Step::End(of_restarted_host(&record.stage));
    }
    let ending = wanted.and_then(|wanted| reason_to_end(record, wanted, facts));
    match &record.stage {
        Stage::Idle => match (wanted, ending) {
            (Some(wanted), _) if wanted.generation > record.generation => Step::Begin,
            (_, Some(outcome)) => Step::End(outcome),
            (Some(_), None) => Step::Prepare,
            (None, None) => Step::Wait,
        },
        Stage::Prepared if ending.is_none() && !shares(record) => Step::Launch,
        Stage::Prepared | Stage::BrokerStarting => ending.map_or(Step::StartBroker, Step::Clean),
        Stage::BrokerUp { .. } if ending.is_none() && !facts.broker_alive => Step::StartBroker,
        Stage::BrokerUp { .. } | Stage::Launching { .. } => {
            ending.map_or_else(|| launch(record), Step::Clean)
        }
        Stage::Launched { .. } => launched(record, ending, facts),
        Stage::Running { broker, .. } => running(broker.is_some(), ending, facts),
        Stage::Stopping { outcome, since, killed, .. } => match facts.process {
            ProcessFact::Gone { exit_code, .. } => Step::Finish(outcome.clone().with_exit(exit_code)),
            ProcessFact::NotStarted { waiting: false } => Step::Finish(outcome.clone()),
            _ if !killed && facts.now.get() >= since.get() + facts.drain_ms => Step::Kill,
            _ => Step::Wait,
        },
        Stage::Cleaning { outcome, .. } => Step::Clean(outcome.clone()),
        Stage::Ended { .. } => match wanted {
            Some(wanted) if wanted.goal == Goal::Absent => Step::Remove,
            Some(wanted) if wanted.goal == Goal::Running && wanted.generation > record.generation => {
                Step::Begin
            }
            _ => Step::Wait,
        },
    }
}

/// Whether the tenant's processes share books that a broker keeps: of donors, or of a cap that they are held to together.
fn shares(record: &InstanceRecord) -> bool {
    !record.spec.donors.is_empty() || record.spec.cap_bytes.is_some()
}

fn launch(record: &InstanceRecord) -> Step {
    if record.launches >= LAUNCHES_MAX {
        Step::Clean(Outcome::failed(FailReason::HostError, "the instance's process could not be set up"))
    } else {
        Step::Launch
    }
}

fn launched(record: &InstanceRecord, ending: Option<Outcome>, facts: &Facts) -> Step {
    match (facts.process, ending) {
        (ProcessFact::Gone { exit_code, out_of_memory }, _) => {
            Step::Finish(Outcome::of_exit(exit_code, out_of_memory))
        }
        (_, Some(outcome)) => Step::Stop(outcome),
        (ProcessFact::Alive, None) => Step::Confirm,
        (ProcessFact::NotStarted { waiting: true }, None) => Step::Wait,
        (ProcessFact::NotStarted { waiting: false }, None) => launch(record),
    }
}

fn running(pooled: bool, ending: Option<Outcome>, facts: &Facts) -> Step {
    match (facts.process, ending) {
        (ProcessFact::Gone { exit_code, out_of_memory }, _) => {
            Step::Finish(Outcome::of_exit(exit_code, out_of_memory))
        }
        (_, Some(outcome)) => Step::Stop(outcome),
        (_, None) if pooled && !facts.broker_alive => Step::ReviveBroker,
        (_, None) => Step::Wait,
    }
}

/// Why this generation has to end, if it has to: a lost card, a goal, or the end of what was paid.
fn reason_to_end(record: &InstanceRecord, wanted: &DesiredInstance, facts: &Facts) -> Option<Outcome> {
    if facts.fallen.is_some() {
        return facts.fallen.clone();
    }
    if wanted.goal != Goal::Running || wanted.generation > record.generation {
        return Some(USER_REQUEST);
    }
    let paid = wanted.run_until.as_ref();
    let over = |until: &tarn_protocol::control::RunUntil| {
        until.boot_id == facts.boot_id && facts.now >= until.mono_ms
    };
    paid.is_some_and(over)
        .then_some(Outcome::Stopped { reason: StopReason::BalanceExhausted, exit_code: None })
}

/// A host that restarted took everything with it.
fn of_restarted_host(stage: &Stage) -> Outcome {
    match stage {
        Stage::Stopping { outcome, .. } | Stage::Cleaning { outcome, .. } => outcome.clone(),
        _ => Outcome::failed(FailReason::HostError, "the host restarted"),
    }
}

#[cfg(test)]
#[path = "planner_tests.rs"]
mod tests;
