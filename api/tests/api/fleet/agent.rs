//! A scripted agent that speaks the real protocol over HTTP: what it runs, reports and withholds is up to the test.
//! It is a driver for the control plane's logic only; the real agent has its own tests.

use std::collections::BTreeMap;

use tarn_protocol::control::{
    CardResidency, CardRole, Desired, DesiredInstance, FailReason, Goal, JoinRequest, JoinResponse,
    ObservedInstance, Phase, Report, ReportAccepted, StopReason, UsageEvidence,
};
use tarn_protocol::hardware::{Inventory, LinkProbe};
use tarn_protocol::ids::{HostId, InstanceId};
use tarn_protocol::units::{BootId, Bytes, Generation, MonoMillis, Sequence, Timestamp};

use super::hardware;
use crate::harness::{Api, Got};

/// What the agent does with an instance that it is told to run.
#[derive(Debug, Clone)]
pub enum Script {
    /// Ready at once.
    Run,
    /// Stays in `preparing`.
    Hang,
    /// Fails with this reason.
    Fail(FailReason, &'static str),
}

#[derive(Debug, Clone)]
struct Local {
    desired: DesiredInstance,
    phase: Phase,
    /// Evidence was given up to here.
    proven_until: Option<MonoMillis>,
}

#[derive(Debug, Clone)]
pub struct FakeAgent {
    pub host_id: HostId,
    pub credential: String,
    pub boot_id: BootId,
    booted_at: Timestamp,
    now: Timestamp,
    pub seq: u64,
    usage_seq: u64,
    number: u32,
    cards: u32,
    inventory: Option<Inventory>,
    probes: Vec<LinkProbe>,
    locals: BTreeMap<InstanceId, Local>,
    highest: BTreeMap<InstanceId, Generation>,
    unacknowledged: Vec<UsageEvidence>,
    revision: i64,
    journalled: Option<i64>,
    wiring: hardware::Wiring,
    /// How the next starts go; the last one repeats.
    pub scripts: Vec<Script>,
    /// How much of the next interval is excused.
    pub excuse_ms: u64,
}

impl FakeAgent {
    /// Joins with `token` as host `number` with `cards` cards, and has everything to report.
    pub async fn join(
        api: &Api,
        token: &str,
        number: u32,
        cards: u32,
        wiring: hardware::Wiring,
        now: Timestamp,
    ) -> Self {
        let boot_id = BootId::new(format!("boot-{number}-1"));
        let request = JoinRequest {
            token: token.to_owned(),
            name: format!("host-{number}"),
            boot_id: boot_id.clone(),
            agent_version: "0.1.0".into(),
            nonce: format!("nonce-{number}"),
        };
        let body = serde_json::to_value(&request).unwrap();
        let joined = api.post_openly("/agent/v1/join", body).await.is(200);
        Self::joined(serde_json::from_value(joined).unwrap(), number, cards, wiring, now)
    }

    /// Host `number`, which has joined over some connection of its own.
    pub fn joined(
        joined: JoinResponse,
        number: u32,
        cards: u32,
        wiring: hardware::Wiring,
        now: Timestamp,
    ) -> Self {
        Self {
            host_id: joined.host_id,
            credential: joined.credential,
            boot_id: BootId::new(format!("boot-{number}-1")),
            booted_at: now.plus_seconds(-1_000),
            now,
            seq: 0,
            usage_seq: 0,
            number,
            cards,
            inventory: Some(hardware::inventory(number, cards)),
            probes: hardware::probes(number, cards, wiring),
            locals: BTreeMap::new(),
            highest: BTreeMap::new(),
            unacknowledged: Vec::new(),
            revision: -1,
            journalled: None,
            wiring,
            scripts: vec![Script::Run],
            excuse_ms: 0,
        }
    }

    pub fn mono(&self, at: Timestamp) -> MonoMillis {
        MonoMillis::new(u64::try_from(at.micros_since(self.booted_at) / 1000).unwrap())
    }

    /// Moves the host's clock.
    pub fn set_now(&mut self, now: Timestamp) {
        self.now = now;
    }

    pub fn uuid(&self, index: u32) -> tarn_protocol::ids::GpuUuid {
        hardware::uuid(self.number, index)
    }

    pub fn runs(&self, id: &InstanceId) -> bool {
        self.locals
            .get(id)
            .is_some_and(|local| matches!(local.phase, Phase::Running { .. } | Phase::Degraded { .. }))
    }

    pub fn has(&self, id: &InstanceId) -> bool {
        self.locals.contains_key(id)
    }

    pub fn instances(&self) -> Vec<InstanceId> {
        self.locals.keys().cloned().collect()
    }

    /// Its clock stood still for `seconds` while the host was suspended.
    pub fn sleep(&mut self, seconds: i64) {
        self.booted_at = self.booted_at.plus_seconds(seconds);
    }

    /// Loses everything that runs, as a reboot does.
    pub fn reboot(&mut self) {
        self.boot_id = BootId::new(format!("{}x", self.boot_id));
        self.booted_at = self.now;
        self.journalled = None;
        self.seq = 0;
        self.locals.clear();
        self.inventory = Some(hardware::inventory(self.number, self.cards));
    }

    /// Runs something that its control plane never asked for: like `like`, under another id.
    pub fn plant(&mut self, like: &DesiredInstance, id: &InstanceId) {
        self.obey_one(&DesiredInstance { instance_id: id.clone(), ..like.clone() });
    }

    /// Forgets an instance without a word, as a broken disk does.
    pub fn lose(&mut self, id: &InstanceId) {
        self.locals.remove(id);
    }

    /// What the agent was last told of an instance that it has.
    pub fn told(&self, id: &InstanceId) -> DesiredInstance {
        self.locals[id].desired.clone()
    }

    pub fn set_phase(&mut self, id: &InstanceId, phase: Phase) {
        self.locals.get_mut(id).expect("known to the agent").phase = phase;
    }

    pub fn set_inventory(&mut self, inventory: Inventory) {
        self.inventory = Some(inventory);
    }

    pub async fn pull(&mut self, api: &Api) -> Desired {
        let body = api.get(&self.credential, "/agent/v1/desired?after=-1&wait_seconds=0").await.is(200);
        let desired: Desired = serde_json::from_value(body).unwrap();
        self.revision = desired.revision;
        desired
    }

    /// One long-poll for what comes after the last document, obeyed and reported.
    pub async fn follow(&mut self, api: &Api, wait_seconds: u64) {
        let path = format!("/agent/v1/desired?after={}&wait_seconds={wait_seconds}", self.revision);
        let desired: Desired =
            serde_json::from_value(api.get(&self.credential, &path).await.is(200)).unwrap();
        self.revision = desired.revision;
        self.obey(&desired);
        self.report(api).await;
    }

    /// Makes the local state follow the desired one; what it does not name is left alone.
    pub fn obey(&mut self, desired: &Desired) {
        self.journalled = Some(desired.revision);
        let place =
            |uuid: &tarn_protocol::ids::GpuUuid| (0..self.cards).find(|index| self.uuid(*index) == *uuid);
        // A card that this machine does not have cannot be probed by it.
        let probed = desired.probes.iter().filter_map(|order| {
            let (from, to) = (place(&order.from)?, place(&order.to)?);
            Some(hardware::probe_of(self.wiring, self.number, from, to))
        });
        let probed: Vec<LinkProbe> = probed.collect();
        self.probes.extend(probed);
        for wanted in &desired.instances {
            let highest = self.highest.entry(wanted.instance_id.clone()).or_insert(wanted.generation);
            if wanted.generation < *highest {
                continue;
            }
            *highest = wanted.generation;
            self.obey_one(wanted);
        }
    }

    fn obey_one(&mut self, wanted: &DesiredInstance) {
        let id = &wanted.instance_id;
        match wanted.goal {
            Goal::Running => {
                let same =
                    self.locals.get(id).is_some_and(|local| local.desired.generation == wanted.generation);
                if !same {
                    let script =
                        if self.scripts.len() > 1 { self.scripts.remove(0) } else { self.scripts[0].clone() };
                    let ready = self.mono(self.now);
                    let own = (0..self.cards).any(|index| self.uuid(index) == wanted.spec.primary);
                    let script =
                        if own { script } else { Script::Fail(FailReason::HostError, "no such card") };
                    let phase = match script {
                        Script::Run => Phase::Running { ready_mono_ms: ready },
                        Script::Hang => Phase::Preparing { step: "process".into() },
                        Script::Fail(reason, detail) => {
                            Phase::Failed { reason, detail: detail.into(), exit_code: Some(1) }
                        }
                    };
                    let proven_until = matches!(phase, Phase::Running { .. }).then_some(ready);
                    self.locals.insert(id.clone(), Local { desired: wanted.clone(), phase, proven_until });
                }
                if let Some(local) = self.locals.get_mut(id) {
                    local.desired = wanted.clone();
                }
            }
            Goal::Stopped => {
                self.prove(id);
                if let Some(local) = self.locals.get_mut(id)
                    && !matches!(local.phase, Phase::Stopped { .. } | Phase::Failed { .. })
                {
                    local.phase = Phase::Stopped { reason: StopReason::UserRequest, exit_code: Some(0) };
                }
            }
            Goal::Absent => {
                self.prove(id);
                self.locals.remove(id);
            }
        }
    }

    /// Gives evidence of one instance up to now.
    fn prove(&mut self, id: &InstanceId) {
        let to = self.mono(self.now);
        let Some(local) = self.locals.get_mut(id) else { return };
        let (Some(from), true) = (local.proven_until, matches!(local.phase, Phase::Running { .. })) else {
            return;
        };
        let to = local.desired.run_until.as_ref().map_or(to, |until| to.min(until.mono_ms));
        if to <= from {
            return;
        }
        local.proven_until = Some(to);
        self.usage_seq += 1;
        self.unacknowledged.push(UsageEvidence {
            seq: Sequence::new(self.usage_seq),
            boot_id: self.boot_id.clone(),
            instance_id: id.clone(),
            generation: local.desired.generation,
            primary: local.desired.spec.primary.clone(),
            from_mono_ms: from,
            to_mono_ms: to,
            excused_ms: self.excuse_ms.min(to.get() - from.get()),
        });
    }

    /// Evidence of `seconds` of an instance from its start, whether or not they were.
    pub fn claim(&self, id: &InstanceId, seconds: u64) -> UsageEvidence {
        let local = &self.locals[id];
        let from = match local.phase {
            Phase::Running { ready_mono_ms } => ready_mono_ms,
            ref other => panic!("{other:?}"),
        };
        UsageEvidence {
            seq: Sequence::new(10_000),
            boot_id: self.boot_id.clone(),
            instance_id: id.clone(),
            generation: local.desired.generation,
            primary: local.desired.spec.primary.clone(),
            from_mono_ms: from,
            to_mono_ms: MonoMillis::new(from.get() + seconds * 1000),
            excused_ms: 0,
        }
    }

    /// Enforces `run_until` by itself, as the agent does while the control plane is away.
    fn enforce(&mut self) {
        let now = self.mono(self.now);
        for id in self.instances() {
            let Some(local) = self.locals.get(&id) else { continue };
            let due = local
                .desired
                .run_until
                .as_ref()
                .is_some_and(|until| until.boot_id == self.boot_id && until.mono_ms <= now);
            if due && matches!(local.phase, Phase::Running { .. }) {
                self.prove(&id);
                self.set_phase(&id, Phase::Stopped { reason: StopReason::BalanceExhausted, exit_code: None });
            }
        }
    }

    /// The next report: everything observed, with fresh evidence for all that runs.
    pub fn next_report(&mut self) -> Report {
        self.enforce();
        for id in self.instances() {
            self.prove(&id);
        }
        self.seq += 1;
        Report {
            boot_id: self.boot_id.clone(),
            seq: Sequence::new(self.seq),
            mono_ms: self.mono(self.now),
            desired_revision: self.journalled,
            inventory: self.inventory.take(),
            probes: std::mem::take(&mut self.probes),
            instances: self.locals.iter().map(|(id, local)| observed(id, local)).collect(),
            usage: self.unacknowledged.clone(),
            telemetry: Vec::new(),
            gpu_events: Vec::new(),
        }
    }

    pub async fn send(&mut self, api: &Api, report: &Report) -> ReportAccepted {
        let body = self.post_report(api, report).await.is(200);
        let accepted: ReportAccepted = serde_json::from_value(body).unwrap();
        self.acknowledged(&accepted);
        accepted
    }

    /// Forgets what the control plane has.
    pub fn acknowledged(&mut self, accepted: &ReportAccepted) {
        self.unacknowledged.retain(|evidence| evidence.seq > accepted.usage_through);
    }

    pub fn owes_nothing(&self) -> bool {
        self.unacknowledged.is_empty()
    }

    pub async fn post_report(&self, api: &Api, report: &Report) -> Got {
        api.post(&self.credential, "/agent/v1/report", serde_json::to_value(report).unwrap()).await
    }

    pub async fn report(&mut self, api: &Api) -> ReportAccepted {
        let report = self.next_report();
        self.send(api, &report).await
    }

    /// One round at `now`: pull, obey, report.
    pub async fn step(&mut self, api: &Api, now: Timestamp) {
        self.set_now(now);
        let desired = self.pull(api).await;
        self.obey(&desired);
        self.report(api).await;
    }
}

fn observed(id: &InstanceId, local: &Local) -> ObservedInstance {
    let spec = &local.desired.spec;
    let up = matches!(local.phase, Phase::Running { .. } | Phase::Degraded { .. });
    let card = |uuid, role| CardResidency {
        uuid,
        role,
        capacity_bytes: Bytes::new(hardware::CARD_BYTES),
        used_bytes: Bytes::mib(300),
        quarantined_bytes: Bytes::new(0),
    };
    let mut residency = Vec::new();
    if up {
        residency.push(card(spec.primary.clone(), CardRole::Primary));
        residency.extend(spec.donors.iter().map(|donor| card(donor.uuid.clone(), CardRole::Donor)));
    }
    ObservedInstance {
        instance_id: id.clone(),
        generation: local.desired.generation,
        phase: local.phase.clone(),
        pool_bytes: up.then(|| Bytes::new(hardware::CARD_BYTES * residency.len() as u64)),
        residency,
        log_tail: Some(format!("log of {id}\n")),
    }
}
