//! What each step does, with the journal written before and after every act upon the world.

use std::path::PathBuf;
use std::time::Duration;

use tarn_protocol::control::{DesiredDonor, FailReason, Goal, GpuEvent};
use tarn_protocol::hardware::{GpuHealth, LinkGrade, LinkProbe, ProbeOutcome};
use tarn_protocol::ids::GpuUuid;
use tarn_protocol::pool_config::PoolConfig;

use super::cleanup;
use super::planner::{Facts, Step};
use super::pool::{self, IdleCard, Places, PoolError};
use super::record::{Outcome, Stage};
use super::worker::{StepError, Worker};
use crate::broker_process::BrokerPlan;
use crate::durable_file;
use crate::probe::circumstances::Circumstances;
use crate::runtime::{Force, LaunchPlan, loader_cache};

const IDLE_WITHIN: Duration = Duration::from_secs(10);
const SAMPLE_WITHIN: Duration = Duration::from_secs(10);
const MEMBERS_GONE_POLL: Duration = Duration::from_millis(20);

type Done = Result<(), StepError>;

fn host_error(detail: impl std::fmt::Display) -> StepError {
    StepError::Ends(Outcome::failed(FailReason::HostError, detail.to_string()))
}

/// An error and what caused it, in one line.
fn whole(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// What keeps a link from a better grade, in one line.
fn limits(probe: &LinkProbe) -> String {
    let limits = probe.evidence.iter().flat_map(|evidence| &evidence.limits);
    let lines: Vec<String> = limits.map(|limit| format!("{}: {}", limit.code, limit.detail)).collect();
    lines.join("; ")
}

impl Worker {
    pub(super) fn execute(&mut self, step: Step, facts: &Facts) -> Done {
        match step {
            Step::Wait => Ok(()),
            Step::Begin => self.begin(),
            Step::Prepare => self.prepare(),
            Step::StartBroker => self.start_broker(),
            Step::ReviveBroker => self.revive_broker(),
            Step::Launch => self.launch(),
            Step::Confirm => self.confirm(),
            Step::Stop(outcome) => self.stop(outcome, facts),
            Step::Kill => self.kill(),
            Step::Finish(outcome) => self.finish(outcome),
            Step::Clean(outcome) => self.clean(outcome),
            Step::End(outcome) => self.end(outcome),
            Step::Remove => self.remove(),
        }
    }

    fn hit(&self, name: &str) {
        self.around.failpoints.hit(name);
    }

    fn begin(&mut self) -> Done {
        let Some(wanted) = &self.wanted else { return Ok(()) };
        let record = Self::fresh(&self.around, wanted);
        record.save(&self.around.state)?;
        self.record = record;
        self.forget_sights();
        Ok(())
    }

    fn prepare(&mut self) -> Done {
        self.take_cards();
        self.around.board.cards_recovered(&self.cards().into_iter().collect());
        let cards = self.own_cards();
        self.require_idle(&cards)?;
        let guard = self.around.settings.driver_guard;
        guard.open(&self.around.cards, &self.donors()).map_err(|error| host_error(whole(&error)))?;
        for donor in self.record.spec.donors.clone() {
            self.verify_link(&donor)?;
        }
        self.require_idle(&cards)?;
        guard.close(&self.around.cards, &self.donors()).map_err(|error| host_error(whole(&error)))?;
        let config = self.compose()?;
        self.hit("prepare.before_directory");
        let settings = &self.around.settings;
        self.directory
            .prepare(&config, &settings.artefacts, settings.driver_dir.as_deref())
            .map_err(|error| host_error(whole(&error)))?;
        if let Err(error) = self.directory.write_loader_cache() {
            tracing::warn!(%error, "no loader cache: entry without our environment sees one card only");
        }
        self.hit("prepare.after_directory");
        self.record.pool_bytes = Some(config.total_bytes());
        self.reach(Stage::Prepared)?;
        self.hit("prepare.after_journal");
        Ok(())
    }

    fn require_idle(&self, cards: &[GpuUuid]) -> Done {
        let residue = cleanup::await_idle(&self.around.cards, cards, IDLE_WITHIN);
        match residue.first() {
            None => Ok(()),
            Some(found) => Err(host_error(format!("card {} is not idle: {}", found.uuid, found.detail))),
        }
    }

    /// The cards on which nobody else may have anything: all, but for a slice's primary.
    fn own_cards(&self) -> Vec<GpuUuid> {
        let shared = usize::from(self.record.spec.cap_bytes.is_some());
        self.cards().into_iter().skip(shared).collect()
    }

    fn donors(&self) -> Vec<GpuUuid> {
        self.record.spec.donors.iter().map(|donor| donor.uuid.clone()).collect()
    }

    /// One quick probe through the product path before anything of the tenant's depends on the link.
    fn verify_link(&self, donor: &DesiredDonor) -> Done {
        let primary = &self.record.spec.primary;
        let circumstances = Circumstances::of(&self.around.cards, primary, &donor.uuid);
        let probe = self.around.prober.verify(primary, &donor.uuid, circumstances);
        let refused = match &probe.outcome {
            ProbeOutcome::Failed { reason, detail } => Some((
                if reason == "p2p_data_mismatch" {
                    FailReason::P2pDataMismatch
                } else {
                    FailReason::PoolVerifyFailed
                },
                format!("{primary} to {}: {reason}: {detail}", donor.uuid),
            )),
            // Good for copies at most: nothing that a tenant could take for memory.
            ProbeOutcome::Passed { .. } if probe.grade < LinkGrade::B => Some((
                FailReason::PoolVerifyFailed,
                format!("{primary} to {}: grade {}: {}", donor.uuid, probe.grade.as_str(), limits(&probe)),
            )),
            ProbeOutcome::Passed { .. } => None,
        };
        self.around.board.probe(probe);
        refused.map_or(Ok(()), |(reason, detail)| Err(StepError::Ends(Outcome::failed(reason, detail))))
    }

    fn compose(&self) -> Result<PoolConfig, StepError> {
        let idle = |uuid: &GpuUuid| {
            let card = self.around.cards.card(uuid).ok_or_else(|| PoolError::NoCard(uuid.clone()))?;
            let sample = card
                .sample(SAMPLE_WITHIN)
                .map_err(|error| PoolError::Silent { uuid: uuid.clone(), detail: error.to_string() })?;
            Ok(IdleCard { gpu: card.facts.gpu.clone(), sample })
        };
        let record = &self.record;
        let places = Places {
            broker_socket: &self.directory.broker_socket(),
            standin_log: &self.directory.standin_log(),
        };
        let key = (&record.instance_id, &record.lease_id, record.generation);
        let mut config = pool::compose(key, &record.spec, idle, places).map_err(host_error)?;
        config.host_tier_bytes = pool::host_tier(&config, self.around.settings.host_tier_max);
        config.validate().map_err(host_error)?;
        Ok(config)
    }

    fn broker_plan(&self) -> BrokerPlan {
        let settings = &self.around.settings;
        BrokerPlan {
            executable: settings.artefacts.join("tarn-broker"),
            driver_dir: settings.driver_dir.clone(),
            config: self.directory.pool_config(),
            socket: self.directory.broker_socket(),
            ledger: self.directory.ledger(),
            log: self.around.state.file("broker-logs").join(format!("{}.log", self.record.instance_id)),
            tenant_cgroup: None,
        }
    }

    /// Takes over a broker that runs, else starts one; either way it answers when this returns.
    fn raise_broker(&self) -> Result<crate::process_mark::ProcessMark, StepError> {
        let runtime = &self.around.runtime;
        let groups = runtime.make_cgroups(&self.record.instance_id);
        let tenant_cgroup = (!groups.is_empty()).then(|| runtime.cgroup_name(&self.record.instance_id));
        let plan = BrokerPlan { tenant_cgroup, ..self.broker_plan() };
        if let Some(running) = plan.running().first()
            && plan.await_ready(running).is_ok()
        {
            return Ok(*running);
        }
        plan.stop();
        let broker = plan.spawn().map_err(|error| host_error(whole(&error)))?;
        self.hit("broker.after_spawn");
        plan.await_ready(&broker).map_err(|error| host_error(whole(&error)))?;
        Ok(broker)
    }

    fn start_broker(&mut self) -> Done {
        if self.record.stage != Stage::BrokerStarting {
            self.reach(Stage::BrokerStarting)?;
        }
        self.hit("broker.after_intent");
        let broker = self.raise_broker()?;
        self.reach(Stage::BrokerUp { broker })?;
        self.hit("broker.after_journal");
        Ok(())
    }

    fn revive_broker(&mut self) -> Done {
        let Stage::Running { process, ready_mono_ms, .. } = self.record.stage else { return Ok(()) };
        match self.raise_broker() {
            Ok(broker) => Ok(self.reach(Stage::Running { broker: Some(broker), process, ready_mono_ms })?),
            // What runs keeps its memory; it stays degraded and the next look tries again.
            Err(StepError::Ends(outcome)) => {
                tracing::error!(?outcome, "the broker does not come back");
                std::thread::sleep(Duration::from_secs(1));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn launch(&mut self) -> Done {
        let broker = self.record.stage.broker();
        self.record.launches += 1;
        self.reach(Stage::Launching { broker })?;
        self.hit("launch.after_intent");
        // A process of an earlier try waits at a gate that nobody can open: it goes, and nothing of the tenant ran in it.
        self.around.runtime.stop(&self.record.instance_id, None, Force::Kill);
        let plan = self.launch_plan();
        let buses = self
            .donors()
            .into_iter()
            .filter_map(|donor| Some(self.around.cards.card(&donor)?.facts.gpu.pci_bus_id.clone()));
        let guard = self.around.settings.driver_guard;
        let limited = guard.limit(&plan.cgroups, &buses.collect::<Vec<_>>());
        limited.map_err(|error| host_error(whole(&error)))?;
        let gated = self.around.runtime.start(&plan).map_err(|error| host_error(whole(&error)))?;
        self.hit("launch.after_spawn");
        let process = gated.process;
        self.reach(Stage::Launched { broker, process })?;
        self.hit("launch.after_journal");
        if let Err(error) = gated.open() {
            // It died at the gate; the next look finds that and tries again.
            tracing::warn!(error = whole(&error), "the gate did not open");
        }
        self.hit("launch.after_gate");
        Ok(())
    }

    fn launch_plan(&self) -> LaunchPlan {
        let record = &self.record;
        let settings = &self.around.settings;
        let pool = self.cards();
        let foreign = self.around.cards.cards().filter(|card| !pool.contains(card.uuid()));
        let nodes = foreign.map(|card| settings.device_dir.join(format!("nvidia{}", card.facts.gpu.minor)));
        let root = self.around.state.root();
        let within = |path: &Option<PathBuf>| path.as_ref().is_some_and(|path| path.starts_with(root));
        let shared_below = within(&settings.driver_dir) || settings.artefacts.starts_with(root);
        LaunchPlan {
            instance_id: record.instance_id.clone(),
            generation: record.generation,
            command: record.spec.command.clone(),
            env: super::environment::compose(&record.spec, &record.instance_id, &self.directory),
            directory: self.directory.root().to_owned(),
            home: self.directory.home(),
            log: self.directory.log(),
            hidden: if shared_below { self.around.state.instances() } else { root.to_owned() },
            masked: nodes.filter(|node| node.exists()).collect(),
            overlays: self.overlays(),
            cgroups: self.around.runtime.make_cgroups(&record.instance_id),
        }
    }

    /// Ours in place of the system's, for processes that name no path and have no environment.
    fn overlays(&self) -> Vec<(PathBuf, PathBuf)> {
        let mut overlays = Vec::new();
        let cache = PathBuf::from(loader_cache::SYSTEM_CACHE);
        if self.directory.loader_cache().exists() && cache.exists() {
            overlays.push((self.directory.loader_cache(), cache));
        }
        for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
            if let Some(system) = super::directory::system_library(name) {
                overlays.push((self.directory.lib().join(name), system));
            }
        }
        overlays
    }

    fn confirm(&mut self) -> Done {
        let Stage::Launched { broker, process } = self.record.stage else { return Ok(()) };
        let milestones = self.around.runtime.milestones(&self.record.instance_id, self.record.generation);
        let Some(started) = milestones.started else { return Ok(()) };
        if let Some(note) = started.note {
            tracing::warn!(instance = %self.record.instance_id, note, "reduced isolation");
        }
        self.reach(Stage::Running { broker, process, ready_mono_ms: started.mono_ms })?;
        self.hit("running.after_journal");
        Ok(())
    }

    fn stop(&mut self, outcome: Outcome, facts: &Facts) -> Done {
        let Some(process) = self.record.stage.process() else { return Ok(()) };
        // What is drained is not billed.
        if let Stage::Running { ready_mono_ms, .. } = self.record.stage {
            self.claim(ready_mono_ms, facts.now);
        }
        let broker = self.record.stage.broker();
        let stopping = Stage::Stopping { broker, process, outcome, since: facts.now, killed: false };
        if let Err(error) = self.reach(stopping) {
            // A disk that the tenant has filled does not keep the tenant running.
            self.around.runtime.stop(&self.record.instance_id, Some(&process), Force::Kill);
            return Err(error.into());
        }
        self.hit("stop.after_intent");
        self.around.runtime.stop(&self.record.instance_id, Some(&process), Force::Ask);
        self.hit("stop.after_signal");
        Ok(())
    }

    fn kill(&mut self) -> Done {
        if let Stage::Stopping { broker, process, outcome, since, .. } = self.record.stage.clone() {
            self.around.runtime.stop(&self.record.instance_id, Some(&process), Force::Kill);
            self.hit("stop.after_kill");
            self.reach(Stage::Stopping { broker, process, outcome, since, killed: true })?;
        }
        Ok(())
    }

    fn finish(&mut self, outcome: Outcome) -> Done {
        self.claim_end();
        let milestones = self.around.runtime.milestones(&self.record.instance_id, self.record.generation);
        let outcome = match (outcome, milestones.setup_error) {
            (Outcome::Failed { reason, exit_code, .. }, Some(detail)) => {
                Outcome::Failed { reason, detail, exit_code }
            }
            (outcome, _) => outcome,
        };
        let broker = self.record.stage.broker();
        // A command that was over before anybody saw it run still ran.
        if let (Stage::Launched { .. }, Some(started), Some(ended)) =
            (&self.record.stage, &milestones.started, &milestones.ended)
        {
            self.claim(started.mono_ms, ended.mono_ms);
        }
        self.reach(Stage::Cleaning { broker, outcome })?;
        self.hit("finish.after_journal");
        Ok(())
    }

    fn clean(&mut self, outcome: Outcome) -> Done {
        if !matches!(self.record.stage, Stage::Cleaning { .. }) {
            let broker = self.record.stage.broker();
            self.reach(Stage::Cleaning { broker, outcome: outcome.clone() })?;
        }
        let id = self.record.instance_id.clone();
        self.kill_members();
        self.hit("clean.before_broker_stop");
        if !self.broker_plan().stop() {
            tracing::error!(instance = %id, "the broker does not end");
        }
        self.hit("clean.after_broker_stop");
        let cards = self.own_cards();
        if let Err(error) = self.around.settings.driver_guard.open(&self.around.cards, &self.donors()) {
            // The scrubber cannot work there then, which keeps the card out.
            tracing::error!(%error, "a donor stays closed");
        }
        let mut left = cleanup::await_idle(&self.around.cards, &cards, IDLE_WITHIN);
        // Only what a tenant may have had in hand; a card that somebody still holds cannot be scrubbed.
        if self.record.launches > 0 {
            let held = |card: &&GpuUuid| left.iter().any(|residue| residue.uuid == **card);
            let idle: Vec<GpuUuid> = cards.iter().filter(|card| !held(card)).cloned().collect();
            left.extend(cleanup::scrub(&self.around.scrubber, &idle));
            left.extend(cleanup::await_idle(&self.around.cards, &idle, IDLE_WITHIN));
        }
        self.hit("clean.after_scrub");
        for residue in left {
            self.quarantine(residue);
        }
        self.around.usage.forget(&self.run_key());
        self.end(outcome)
    }

    /// Keeps a card that is not as it was out of every placement until it is tested again.
    fn quarantine(&self, residue: cleanup::Residue) {
        let reason = format!("residue after {}: {}", self.record.instance_id, residue.detail);
        self.around.fault(&residue.uuid, GpuHealth::Drain { reason: reason.clone() });
        self.around.board.event(GpuEvent {
            uuid: residue.uuid,
            mono_ms: self.around.clock.now(),
            xid: 0,
            detail: reason,
            escape: None,
        });
    }

    /// Whatever escaped its first process goes before its cards are looked at.
    fn kill_members(&self) {
        let id = &self.record.instance_id;
        for _ in 0..100 {
            if self.around.runtime.members(id, None).is_empty() {
                return;
            }
            self.around.runtime.stop(id, None, Force::Kill);
            std::thread::sleep(MEMBERS_GONE_POLL);
        }
        tracing::error!(instance = %id, "processes of the instance do not end");
    }

    fn end(&mut self, outcome: Outcome) -> Done {
        self.claim_end();
        self.reach(Stage::Ended { outcome })?;
        self.hit("ended.after_journal");
        Ok(())
    }

    /// Everything goes, the journal last but for the goal: whatever dies in between finds what is left by it.
    fn remove(&mut self) -> Done {
        let id = self.record.instance_id.clone();
        self.kill_members();
        self.broker_plan().stop();
        self.hit("remove.before_directory");
        self.around.runtime.remove(&id).map_err(|error| host_error(whole(&error)))?;
        self.directory.remove().map_err(host_error)?;
        durable_file::remove(&self.broker_plan().log)?;
        self.hit("remove.after_directory");
        let still_absent = self.wanted.as_ref().is_none_or(|wanted| wanted.goal == Goal::Absent);
        debug_assert!(still_absent, "only an absent goal removes");
        durable_file::remove(&self.around.state.journal(&id))?;
        durable_file::remove(&self.around.state.wanted(&id))?;
        self.hit("remove.after_journal");
        self.around.board.removed(&id);
        Ok(())
    }
}
