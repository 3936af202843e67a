//! A host with its agent: what really runs, what is on its disk, and what it says.
//!
//! Between two calls nothing happens to it but the passing of time, so [`Host::advance`] works out what that time brought: commands
//! that became ready, ended, or reached the end of what is paid. The agent's rules are those of `tarn-agent`: evidence meets and never
//! overlaps, is on disk before it is sent, and is sent until it is acknowledged; goals are fenced by generation; `run_until` is
//! enforced whoever answers.

use std::collections::BTreeMap;

use tarn_protocol::control::{
    FailReason, Goal, ObservedInstance, Phase, Report, RunUntil, StopReason, UsageEvidence,
};
use tarn_protocol::ids::{GpuUuid, HostId, InstanceId};
use tarn_protocol::units::{BootId, Generation, MonoMillis, Sequence};

use crate::choices::Choices;

/// What a boot's clock shows when it begins.
const MONO_START: u64 = 1_000_000;

/// What the control plane wants of one instance.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub instance_id: InstanceId,
    pub number: u64,
    pub generation: Generation,
    pub goal: Goal,
    pub primary: GpuUuid,
    pub run_until: Option<RunUntil>,
}

/// What really happened to one run: the oracle's side of the story.
#[derive(Debug, Clone)]
pub struct Truth {
    pub instance_id: InstanceId,
    pub generation: Generation,
    pub boot_id: BootId,
    pub primary: GpuUuid,
    /// On the boot's clock.
    pub ready: u64,
    pub died: Option<u64>,
    /// Up to where the agent can ever give evidence; `None` while it runs.
    pub claimable: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
enum Stage {
    Preparing { ready_at: u64 },
    Running { ready: u64 },
    Stopping { dies_at: u64, reason: StopReason },
    Stopped { reason: StopReason },
    Failed { reason: FailReason },
}

/// How a generation goes, fixed by the seed.
#[derive(Debug, Clone, Copy)]
struct Fate {
    prepares_ms: u64,
    fails: Option<FailReason>,
    hangs: bool,
    ends_after_ms: Option<u64>,
    fails_in_the_end: bool,
    drain_ms: u64,
    /// The end is written down where an agent that was down finds it.
    milestone: bool,
}

impl Fate {
    fn of(seed: u64, instance: u64, generation: i64, report_ms: i64) -> Self {
        let mut choices = Choices::fate(seed, &[1, instance, generation.unsigned_abs()]);
        let ms = |choices: &mut Choices, high: i64| choices.between(1, high).unsigned_abs();
        let verdict = choices.between(0, 100);
        Self {
            prepares_ms: ms(&mut choices, 20_000),
            fails: match verdict {
                0..8 => Some(FailReason::PoolVerifyFailed),
                8..12 => Some(FailReason::CommandFailed),
                12..14 => Some(FailReason::HostError),
                _ => None,
            },
            hangs: (14..16).contains(&verdict),
            ends_after_ms: choices.percent(25).then(|| ms(&mut choices, report_ms * 40)),
            fails_in_the_end: choices.percent(50),
            drain_ms: ms(&mut choices, 3_000),
            milestone: choices.percent(70),
        }
    }
}

#[derive(Debug, Clone)]
struct Local {
    wanted: Wanted,
    fate: Fate,
    stage: Stage,
    boot_id: BootId,
    /// Since when the agent watches over it with what it knows now.
    watched_from: u64,
    /// Evidence is on disk up to here.
    mark: u64,
    /// Trouble of ours, `[from, to)` on the boot's clock.
    trouble: (u64, u64),
    truth: Option<usize>,
}

#[derive(Debug)]
pub struct Host {
    pub id: HostId,
    number: u64,
    seed: u64,
    report_ms: i64,
    boot: u32,
    booted_at: i64,
    slept_ms: i64,
    asleep_since: Option<i64>,
    /// Its clock when it woke, until a report from then on was heard: until then nobody can know how far it is behind.
    pub woke: Option<u64>,
    pub powered: bool,
    pub agent_up: bool,
    /// Counts agent processes: an answer to an earlier one reaches nobody.
    pub life: u32,
    agent_since: u64,
    revision: Option<i64>,
    seq: u64,
    usage_seq: u64,
    spool: Vec<UsageEvidence>,
    fence: BTreeMap<InstanceId, Generation>,
    locals: BTreeMap<InstanceId, Local>,
    pub truths: Vec<Truth>,
}

impl Host {
    pub fn new(id: HostId, number: u64, seed: u64, report_ms: i64) -> Self {
        Self {
            id,
            number,
            seed,
            report_ms,
            boot: 1,
            booted_at: 0,
            slept_ms: 0,
            asleep_since: None,
            woke: None,
            powered: true,
            agent_up: true,
            life: 1,
            agent_since: MONO_START,
            revision: None,
            seq: 0,
            usage_seq: 0,
            spool: Vec::new(),
            fence: BTreeMap::new(),
            locals: BTreeMap::new(),
            truths: Vec::new(),
        }
    }

    pub fn boot_id(&self) -> BootId {
        BootId::new(format!("boot-{}-{}", self.number, self.boot))
    }

    /// CLOCK_MONOTONIC at true time `at`: it stands still while the host sleeps.
    pub fn mono(&self, at: i64) -> u64 {
        let awake = self.asleep_since.unwrap_or(at).min(at);
        MONO_START + u64::try_from(awake - self.booted_at - self.slept_ms).expect("a clock runs forward")
    }

    /// Whether it slept since it booted.
    pub fn slept(&self) -> bool {
        self.slept_ms > 0
    }

    pub fn asleep(&self) -> bool {
        self.asleep_since.is_some()
    }

    /// Whether its agent can do anything now.
    pub fn acts(&self) -> bool {
        self.powered && self.agent_up && self.asleep_since.is_none()
    }

    /// Whether it has nothing left to do or to tell.
    pub fn idle(&self) -> bool {
        self.spool.is_empty() && self.locals.is_empty()
    }

    pub fn suspend(&mut self, at: i64) {
        self.advance(at);
        if self.powered && self.asleep_since.is_none() {
            self.asleep_since = Some(at);
        }
    }

    pub fn wake(&mut self, at: i64) {
        if let Some(since) = self.asleep_since.take() {
            self.slept_ms += at - since;
            self.woke = Some(self.mono(at));
        }
    }

    pub fn stop_agent(&mut self, at: i64) {
        self.advance(at);
        self.agent_up = false;
    }

    pub fn start_agent(&mut self, at: i64) {
        if self.agent_up || !self.powered {
            return;
        }
        self.advance(at);
        (self.agent_up, self.life) = (true, self.life + 1);
        let now = self.mono(at);
        self.agent_since = now;
        for local in self.locals.values_mut() {
            local.watched_from = now;
            if let Stage::Preparing { ready_at } = &mut local.stage {
                *ready_at = (*ready_at).max(now + 1);
            }
        }
    }

    /// Everything that runs is gone, and with it the evidence that was not on disk.
    pub fn power_off(&mut self, at: i64) {
        self.wake(at);
        self.advance(at);
        if !self.powered {
            return;
        }
        let now = self.mono(at);
        (self.powered, self.agent_up) = (false, false);
        for local in self.locals.values_mut() {
            if let Some(truth) = local.truth {
                let truth = &mut self.truths[truth];
                truth.died = truth.died.or(Some(now));
                truth.claimable = truth.claimable.or(Some(local.mark));
            }
            match local.stage {
                Stage::Stopped { .. } | Stage::Failed { .. } => {}
                Stage::Stopping { reason, .. } => local.stage = Stage::Stopped { reason },
                _ => local.stage = Stage::Failed { reason: FailReason::HostError },
            }
        }
    }

    pub fn power_on(&mut self, at: i64) {
        if self.powered {
            return;
        }
        (self.powered, self.boot, self.booted_at, self.slept_ms, self.seq) = (true, self.boot + 1, at, 0, 0);
        self.woke = None;
        self.start_agent(at);
        self.remove_absent();
    }

    /// What time brought since the last call.
    pub fn advance(&mut self, at: i64) {
        if !self.powered {
            return;
        }
        let now = self.mono(at);
        let ids: Vec<InstanceId> = self.locals.keys().cloned().collect();
        for id in ids {
            while self.step(&id, now) {}
        }
        self.remove_absent();
    }

    /// One step of one instance that is due by `now`; false when none is.
    fn step(&mut self, id: &InstanceId, now: u64) -> bool {
        let agent_up = self.agent_up;
        let boot_id = self.boot_id();
        let Some(local) = self.locals.get_mut(id) else { return false };
        match local.stage {
            Stage::Preparing { ready_at } if agent_up && ready_at <= now && !local.fate.hangs => {
                local.stage = match local.fate.fails {
                    Some(reason) => Stage::Failed { reason },
                    None => Stage::Running { ready: ready_at },
                };
                if local.fate.fails.is_none() {
                    (local.mark, local.truth) = (ready_at, Some(self.truths.len()));
                    self.truths.push(Truth {
                        instance_id: id.clone(),
                        generation: local.wanted.generation,
                        boot_id,
                        primary: local.wanted.primary.clone(),
                        ready: ready_at,
                        died: None,
                        claimable: None,
                    });
                }
                true
            }
            Stage::Running { ready } => {
                let paid =
                    local.wanted.run_until.as_ref().filter(|until| agent_up && until.boot_id == boot_id);
                let paid = paid.map(|until| until.mono_ms.get().max(local.watched_from));
                let ends = local.fate.ends_after_ms.map(|ms| ready + ms);
                match (ends, paid) {
                    (Some(ends), paid) if ends <= now && paid.is_none_or(|paid| ends <= paid) => {
                        self.end(id, ends);
                    }
                    (_, Some(paid)) if paid <= now => self.begin_stop(id, paid, StopReason::BalanceExhausted),
                    _ => return false,
                }
                true
            }
            Stage::Stopping { dies_at, reason } if dies_at <= now => {
                local.stage = Stage::Stopped { reason };
                true
            }
            _ => false,
        }
    }

    /// The command ended by itself.
    fn end(&mut self, id: &InstanceId, ended: u64) {
        let seen = self.agent_up && ended >= self.agent_since;
        let local = self.locals.get_mut(id).expect("it ran");
        local.stage = if local.fate.fails_in_the_end {
            Stage::Failed { reason: FailReason::CommandFailed }
        } else {
            Stage::Stopped { reason: StopReason::CommandEnded }
        };
        let claimable = if seen || local.fate.milestone { ended } else { local.mark };
        let truth = &mut self.truths[local.truth.expect("it ran")];
        (truth.died, truth.claimable) = (Some(ended), Some(claimable));
        self.claim(id, claimable);
    }

    fn begin_stop(&mut self, id: &InstanceId, from: u64, reason: StopReason) {
        let local = self.locals.get_mut(id).expect("it runs");
        let dies_at = from + local.fate.drain_ms;
        local.stage = Stage::Stopping { dies_at, reason };
        let truth = &mut self.truths[local.truth.expect("it runs")];
        (truth.died, truth.claimable) = (Some(dies_at), Some(from));
        self.claim(id, from);
    }

    /// Evidence up to `until`, on disk.
    fn claim(&mut self, id: &InstanceId, until: u64) {
        let local = self.locals.get_mut(id).expect("it ran");
        if until <= local.mark {
            return;
        }
        self.usage_seq += 1;
        self.spool.push(UsageEvidence {
            seq: Sequence::new(self.usage_seq),
            boot_id: local.boot_id.clone(),
            instance_id: id.clone(),
            generation: local.wanted.generation,
            primary: local.wanted.primary.clone(),
            from_mono_ms: MonoMillis::new(local.mark),
            to_mono_ms: MonoMillis::new(until),
            excused_ms: 0,
        });
        local.mark = until;
    }

    fn remove_absent(&mut self) {
        self.locals.retain(|_, local| {
            let ended = matches!(local.stage, Stage::Stopped { .. } | Stage::Failed { .. });
            local.wanted.goal != Goal::Absent || !ended
        });
    }

    /// Makes its instances follow a desired document; what the document does not name is left alone.
    /// Whether that changed anything worth a report.
    pub fn obey(&mut self, revision: i64, wanted: &[Wanted], at: i64) -> bool {
        self.advance(at);
        let before: Vec<Stage> = self.locals.values().map(|local| local.stage.clone()).collect();
        self.revision = Some(revision);
        for one in wanted {
            let highest = self.fence.entry(one.instance_id.clone()).or_insert(one.generation);
            if one.generation >= *highest {
                *highest = one.generation;
                self.obey_one(one, at);
            }
        }
        self.remove_absent();
        before != self.locals.values().map(|local| local.stage.clone()).collect::<Vec<_>>()
    }

    fn obey_one(&mut self, wanted: &Wanted, at: i64) {
        let now = self.mono(at);
        let id = &wanted.instance_id;
        let known = self.locals.get(id).map(|local| local.wanted.generation);
        match (known, wanted.goal) {
            (Some(generation), Goal::Running) if generation == wanted.generation => {
                let local = self.locals.get_mut(id).expect("known");
                (local.wanted, local.watched_from) = (wanted.clone(), now);
            }
            (_, Goal::Running) => self.begin(wanted, now),
            (None, _) => {}
            // Of a later generation too: nothing of the one before is to be left.
            (Some(_), goal) => {
                let local = self.locals.get_mut(id).expect("known");
                (local.wanted.goal, local.watched_from) = (goal, now);
                match local.stage {
                    Stage::Preparing { .. } => {
                        local.stage = Stage::Stopped { reason: StopReason::UserRequest }
                    }
                    Stage::Running { .. } => self.begin_stop(id, now, StopReason::UserRequest),
                    _ => {}
                }
            }
        }
    }

    /// A generation begins; the run before ends first.
    fn begin(&mut self, wanted: &Wanted, now: u64) {
        let id = &wanted.instance_id;
        if self.locals.get(id).is_some_and(|local| matches!(local.stage, Stage::Running { .. })) {
            self.begin_stop(id, now, StopReason::UserRequest);
        }
        let fate = Fate::of(self.seed, wanted.number, wanted.generation.get(), self.report_ms);
        let local = Local {
            wanted: wanted.clone(),
            fate,
            stage: Stage::Preparing { ready_at: now + fate.prepares_ms },
            boot_id: self.boot_id(),
            watched_from: now,
            mark: 0,
            trouble: (0, 0),
            truth: None,
        };
        self.locals.insert(id.clone(), local);
    }

    /// The pool of `id` is in trouble for a while.
    pub fn trouble(&mut self, id: &InstanceId, ms: i64, at: i64) {
        self.advance(at);
        let now = self.mono(at);
        if let Some(local) = self.locals.get_mut(id) {
            local.trouble = (now, now + ms.unsigned_abs());
        }
    }

    /// The next report, with fresh evidence for everything that is alive.
    pub fn report(&mut self, at: i64) -> Report {
        self.advance(at);
        let now = self.mono(at);
        let ids: Vec<InstanceId> = self.locals.keys().cloned().collect();
        for id in &ids {
            if matches!(self.locals[id].stage, Stage::Running { .. }) {
                self.claim(id, now);
            }
        }
        self.seq += 1;
        Report {
            boot_id: self.boot_id(),
            seq: Sequence::new(self.seq),
            mono_ms: MonoMillis::new(now),
            desired_revision: self.revision,
            inventory: None,
            probes: Vec::new(),
            instances: self.locals.values().map(|local| observed(local, now)).collect(),
            usage: self.spool.clone(),
            telemetry: Vec::new(),
            gpu_events: Vec::new(),
        }
    }

    pub fn acknowledged(&mut self, through: Sequence) {
        self.spool.retain(|evidence| evidence.seq > through);
    }
}

fn observed(local: &Local, now: u64) -> ObservedInstance {
    let phase = match local.stage {
        Stage::Preparing { .. } => Phase::Preparing { step: "pool_verify".to_owned() },
        Stage::Running { ready } => {
            let ready_mono_ms = MonoMillis::new(ready);
            let (from, to) = local.trouble;
            if (from..to).contains(&now) {
                Phase::Degraded { ready_mono_ms, reason: "the pool's broker is down".to_owned() }
            } else {
                Phase::Running { ready_mono_ms }
            }
        }
        Stage::Stopping { .. } => Phase::Stopping,
        Stage::Stopped { reason } => Phase::Stopped { reason, exit_code: None },
        Stage::Failed { reason } => Phase::Failed { reason, detail: String::new(), exit_code: None },
    };
    ObservedInstance {
        instance_id: local.wanted.instance_id.clone(),
        generation: local.wanted.generation,
        phase,
        residency: Vec::new(),
        log_tail: None,
        pool_bytes: None,
    }
}
