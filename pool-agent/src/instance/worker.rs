//! The thread that owns one instance: it looks, asks the planner, does the step, and posts what it sees.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use tarn_protocol::control::{DesiredInstance, FailReason, Goal, ObservedInstance};
use tarn_protocol::hardware::GpuHealth;
use tarn_protocol::ids::{GpuUuid, InstanceId};
use tarn_protocol::pool_config::PoolConfig;
use tarn_protocol::units::{Bytes, MonoMillis};

use super::directory::InstanceDirectory;
use super::planner::{self, Facts, ProcessFact, Step};
use super::record::{InstanceRecord, Outcome, Stage};
use super::residency::residency;
use crate::board::Board;
use crate::broker_process;
use crate::card_use::CardUse;
use crate::clock::HostClock;
use crate::donor_guard::allowed::Allowed;
use crate::donor_guard::driver::DriverGuard;
use crate::donor_guard::roster::{Roster, Seat};
use crate::durable_file::{self, DurableError};
use crate::failpoint::Failpoints;
use crate::health::HealthBook;
use crate::nvml::host::HostCards;
use crate::probe::errands;
use crate::probe::pair::{Occasion, Prober};
use crate::runtime::Runtime;
use crate::scrub::card::Scrubber;
use crate::state_dir::StateDir;
use crate::usage::{Claim, Run, UsageSpool};

/// How often a worker looks at its processes when nothing else wakes it.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const RETRY_AFTER: Duration = Duration::from_secs(1);
const SAMPLE_WITHIN: Duration = Duration::from_millis(500);
/// Between two looks at cards and broker.
const SURVEY_EVERY_MS: u64 = 1000;

/// What all workers of the host share.
#[derive(Debug)]
pub struct Surroundings {
    pub clock: HostClock,
    pub state: StateDir,
    pub failpoints: Failpoints,
    pub cards: HostCards,
    pub health: Mutex<HealthBook>,
    pub runtime: Box<dyn Runtime>,
    pub prober: Prober,
    pub scrubber: Scrubber,
    pub board: Board,
    pub card_use: CardUse,
    /// Whose card is whose, and who may compute on a donor: for the guard.
    pub roster: Roster,
    pub allowed: Arc<Allowed>,
    pub usage: UsageSpool,
    pub settings: Settings,
}

#[derive(Debug, Clone)]
pub struct Settings {
    /// Where stand-ins and broker lie.
    pub artefacts: PathBuf,
    pub driver_dir: Option<PathBuf>,
    /// Where the cards' device nodes are.
    pub device_dir: PathBuf,
    pub drain_ms: u64,
    pub driver_guard: DriverGuard,
    pub usage_interval_ms: u64,
    /// Bytes of the host's memory that one pool may overflow into.
    pub host_tier_max: Option<Bytes>,
}

impl Surroundings {
    /// Notes a lasting fault of a card, on disk and on the board's next inventory.
    pub fn fault(&self, uuid: &GpuUuid, verdict: GpuHealth) {
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        health.fault(uuid, verdict);
        if let Err(error) = health.save(&self.state) {
            tracing::error!(%error, "a card's fault is not on disk");
        }
    }
}

/// What the worker is told: the latest goal replaces an unread one.
#[derive(Debug, Default)]
pub struct Mailbox {
    goal: Mutex<Option<DesiredInstance>>,
    posted: Condvar,
}

impl Mailbox {
    pub fn post(&self, goal: DesiredInstance) {
        *self.goal.lock().unwrap_or_else(PoisonError::into_inner) = Some(goal);
        self.posted.notify_one();
    }

    fn take(&self) -> Option<DesiredInstance> {
        self.goal.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn wait(&self, most: Duration) {
        let goal = self.goal.lock().unwrap_or_else(PoisonError::into_inner);
        if goal.is_none() {
            // Woken, timed out or neither: the loop looks again.
            drop(self.posted.wait_timeout(goal, most).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

#[derive(Debug)]
pub struct Worker {
    pub(super) around: Arc<Surroundings>,
    pub(super) directory: InstanceDirectory,
    pub(super) record: InstanceRecord,
    pub(super) wanted: Option<DesiredInstance>,
    mailbox: Arc<Mailbox>,
    /// When the command was last seen alive by this agent process.
    last_seen: Option<MonoMillis>,
    survey: Survey,
    /// The cards that this worker has taken for its pool.
    taken: Vec<GpuUuid>,
}

/// What the last look at cards and broker gave.
#[derive(Debug, Default)]
struct Survey {
    at: MonoMillis,
    config: Option<PoolConfig>,
    residency: Vec<tarn_protocol::control::CardResidency>,
}

/// Why a step did not get done.
#[derive(Debug)]
pub(super) enum StepError {
    /// The generation ends so.
    Ends(Outcome),
    /// The journal could not be written: nothing was done; try again.
    Journal(DurableError),
}

impl From<DurableError> for StepError {
    fn from(error: DurableError) -> Self {
        Self::Journal(error)
    }
}

impl Worker {
    /// Takes up an instance: from its journal, else new with the goal's generation; `None` for a leftover without either.
    pub fn take_up(
        around: &Arc<Surroundings>,
        id: &InstanceId,
        wanted: Option<DesiredInstance>,
        mailbox: Arc<Mailbox>,
    ) -> Result<Option<Self>, DurableError> {
        let journaled = match InstanceRecord::load(&around.state, id) {
            Err(DurableError::Parse { .. }) if wanted.is_some() => {
                tracing::error!(instance = %id, "the journal is not readable; going by what runs");
                None
            }
            other => other?,
        };
        let record = journaled.or_else(|| wanted.as_ref().map(|wanted| Self::by_what_runs(around, wanted)));
        let Some(record) = record else { return Ok(None) };
        let mut worker = Self {
            around: Arc::clone(around),
            directory: InstanceDirectory::at(around.state.instance(id)),
            record,
            wanted,
            mailbox,
            last_seen: None,
            survey: Survey::default(),
            taken: Vec::new(),
        };
        if !matches!(worker.record.stage, Stage::Idle | Stage::Ended { .. }) {
            worker.take_cards();
        }
        Ok(Some(worker))
    }

    /// A record without a journal: new, unless a process stands for the instance already.
    fn by_what_runs(around: &Surroundings, wanted: &DesiredInstance) -> InstanceRecord {
        let mut record = Self::fresh(around, wanted);
        if let Some((generation, process)) = around.runtime.find(&wanted.instance_id) {
            let socket = InstanceDirectory::at(around.state.instance(&wanted.instance_id)).broker_socket();
            let broker = broker_process::running_at(&socket).first().copied();
            record.generation = generation;
            record.stage = Stage::Launched { broker, process };
        }
        record
    }

    /// Keeps probes off the pool's cards until the generation ends.
    pub(super) fn take_cards(&mut self) {
        self.give_back_cards();
        self.taken = self.cards();
        let (primary, donors) = (self.record.spec.primary.clone(), self.taken[1..].to_vec());
        self.around.roster.seat(&self.record.instance_id, Seat { primary, donors });
        self.around.card_use.take(&self.taken);
    }

    pub(super) fn give_back_cards(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        self.around.roster.leave(&self.record.instance_id);
        let owed = self.around.card_use.give_back(&self.taken);
        self.taken.clear();
        errands::send(&self.around, owed, Occasion::Released);
    }

    pub(super) fn fresh(around: &Surroundings, wanted: &DesiredInstance) -> InstanceRecord {
        InstanceRecord {
            instance_id: wanted.instance_id.clone(),
            generation: wanted.generation,
            lease_id: wanted.lease_id.clone(),
            spec: wanted.spec.clone(),
            boot_id: around.clock.boot_id().clone(),
            pool_bytes: None,
            launches: 0,
            stage: Stage::Idle,
        }
    }

    /// Posts the instance before its thread runs, so that no report misses it.
    pub fn announce(&self) {
        self.post(None);
    }

    /// Until the instance is gone from this host.
    pub fn run(mut self) {
        loop {
            if let Some(goal) = self.mailbox.take() {
                self.wanted = Some(goal);
            }
            let facts = self.facts();
            self.claim_usage(&facts);
            self.survey(&facts);
            let step = planner::next(&self.record, self.wanted.as_ref(), &facts);
            let trouble = self.trouble(&facts);
            self.post(trouble.as_deref());
            match self.take_step(step, &facts) {
                Taken::Removed => return,
                Taken::Moved => {}
                Taken::Nothing => self.mailbox.wait(LOOK_EVERY),
                Taken::Stuck => self.mailbox.wait(RETRY_AFTER),
            }
        }
    }

    fn take_step(&mut self, step: Step, facts: &Facts) -> Taken {
        if step == Step::Wait {
            return Taken::Nothing;
        }
        tracing::info!(instance = %self.record.instance_id, generation = %self.record.generation, ?step, "step");
        let removing = step == Step::Remove;
        let result = self.execute(step, facts);
        match result {
            Ok(()) if removing => {
                self.around.state.keep_reserve();
                Taken::Removed
            }
            Ok(()) => Taken::Moved,
            Err(StepError::Ends(outcome)) => {
                tracing::warn!(instance = %self.record.instance_id, ?outcome, "step failed");
                let broker = self.record.stage.broker();
                let next = match self.record.stage {
                    // Nothing was started, so there is nothing to clean.
                    Stage::Idle => Stage::Ended { outcome },
                    _ => Stage::Cleaning { broker, outcome },
                };
                match self.reach(next) {
                    Ok(()) => Taken::Moved,
                    Err(error) => stuck(&error),
                }
            }
            Err(StepError::Journal(error)) => {
                if facts.process != ProcessFact::Alive {
                    // Nothing of this tenant takes the space any more.
                    self.around.state.release_reserve();
                }
                stuck(&error)
            }
        }
    }

    fn facts(&self) -> Facts {
        let stage = &self.record.stage;
        let process = stage.process().map_or(ProcessFact::NotStarted { waiting: false }, |process| {
            self.around.runtime.inspect(&self.record.instance_id, self.record.generation, &process)
        });
        Facts {
            now: self.around.clock.now(),
            boot_id: self.around.clock.boot_id().clone(),
            broker_alive: stage.broker().is_some_and(|broker| broker.alive()),
            process,
            fallen: self.fallen(),
            drain_ms: self.around.settings.drain_ms,
        }
    }

    fn fallen(&self) -> Option<Outcome> {
        if matches!(self.record.stage, Stage::Idle | Stage::Ended { .. }) {
            return None;
        }
        let (card, detail) = self.around.board.fallen(self.cards().iter())?;
        let reason =
            if card == self.record.spec.primary { FailReason::GpuFault } else { FailReason::PeerLost };
        Some(Outcome::failed(reason, format!("{card}: {detail}")))
    }

    /// The primary, then the donors.
    pub(super) fn cards(&self) -> Vec<GpuUuid> {
        let spec = &self.record.spec;
        std::iter::once(spec.primary.clone())
            .chain(spec.donors.iter().map(|donor| donor.uuid.clone()))
            .collect()
    }

    pub(super) fn run_key(&self) -> Run {
        Run {
            boot_id: self.record.boot_id.clone(),
            instance_id: self.record.instance_id.clone(),
            generation: self.record.generation,
        }
    }

    /// Writes evidence while the command is seen alive, every so often.
    fn claim_usage(&mut self, facts: &Facts) {
        let Stage::Running { ready_mono_ms, .. } = self.record.stage else { return };
        if facts.process != ProcessFact::Alive {
            return;
        }
        let usual = self.around.settings.usage_interval_ms;
        let due = facts.now.get() / self.around.usage.interval_ms(usual).max(1);
        let seen = self.last_seen.map(|seen| seen.get() / self.around.usage.interval_ms(usual).max(1));
        self.last_seen = Some(facts.now);
        if seen != Some(due) {
            self.claim(ready_mono_ms, facts.now);
        }
    }

    pub(super) fn claim(&self, ready: MonoMillis, until: MonoMillis) {
        let primary = self.record.spec.primary.clone();
        let claim = Claim { run: self.run_key(), primary, ready, until, excused: false };
        if let Err(error) = self.around.usage.claim(&claim) {
            // The next claim starts where the last durable one ended, so nothing is lost yet.
            tracing::error!(%error, "usage evidence is not on disk");
        }
    }

    /// The end of the run: until the moment that was written down, else until it was last seen.
    pub(super) fn claim_end(&self) {
        let Stage::Running { ready_mono_ms, .. } = self.record.stage else { return };
        let milestones = self.around.runtime.milestones(&self.record.instance_id, self.record.generation);
        if let Some(until) = milestones.ended.map(|ended| ended.mono_ms).or(self.last_seen) {
            self.claim(ready_mono_ms, until);
        }
    }

    /// Looks at cards and broker once a second: residency for reports.
    fn survey(&mut self, facts: &Facts) {
        let due = facts.now.get().saturating_sub(self.survey.at.get()) >= SURVEY_EVERY_MS;
        let up = matches!(self.record.stage, Stage::Running { .. } | Stage::Stopping { .. });
        if !due || !up {
            return;
        }
        self.survey.at = facts.now;
        if self.survey.config.is_none() {
            self.survey.config = durable_file::read_json(&self.directory.pool_config()).ok().flatten();
        }
        if let Some(config) = &self.survey.config {
            let card = self.around.cards.card(&config.primary.uuid);
            let sample = card.and_then(|card| card.sample(SAMPLE_WITHIN).ok().or_else(|| card.last()));
            let donors = broker_process::figures(&self.directory.broker_socket()).unwrap_or_default();
            self.survey.residency = residency(config, sample.map_or(0, |sample| sample.used_bytes), &donors);
        }
    }

    /// Ours, not the tenant's.
    fn trouble(&self, facts: &Facts) -> Option<String> {
        let pooled = self.record.stage.broker().is_some();
        (pooled && !facts.broker_alive).then(|| "the pool's broker is down".to_owned())
    }

    fn post(&self, trouble: Option<&str>) {
        let absent = self.wanted.as_ref().is_some_and(|wanted| wanted.goal == Goal::Absent);
        let phase = match &self.record.stage {
            // Nothing was started and nothing will be.
            Stage::Idle if absent => tarn_protocol::control::Phase::Stopping,
            stage => stage.phase(trouble),
        };
        let ended = matches!(self.record.stage, Stage::Ended { .. } | Stage::Idle);
        self.around.board.instance(ObservedInstance {
            instance_id: self.record.instance_id.clone(),
            generation: self.record.generation,
            phase,
            residency: if ended { Vec::new() } else { self.survey.residency.clone() },
            log_tail: None,
            pool_bytes: self.record.pool_bytes,
        });
    }

    /// Journals a new stage.
    pub(super) fn reach(&mut self, stage: Stage) -> Result<(), DurableError> {
        let mut record = self.record.clone();
        record.stage = stage;
        record.boot_id = self.around.clock.boot_id().clone();
        record.save(&self.around.state)?;
        self.record = record;
        if matches!(self.record.stage, Stage::Ended { .. }) {
            self.give_back_cards();
        }
        Ok(())
    }

    /// Forgets what was seen of an earlier generation.
    pub(super) fn forget_sights(&mut self) {
        self.last_seen = None;
        self.survey = Survey::default();
    }
}

enum Taken {
    Nothing,
    Moved,
    Stuck,
    Removed,
}

fn stuck(error: &DurableError) -> Taken {
    tracing::error!(%error, source = ?std::error::Error::source(error), "the journal cannot be written; nothing is done until it can");
    Taken::Stuck
}
