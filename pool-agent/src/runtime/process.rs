//! Instances as plain processes: a session, namespaces and a cgroup of their own where the machine allows.

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use tarn_protocol::ids::InstanceId;
use tarn_protocol::units::Generation;

use super::run_dir::{Milestones, RunDir};
use super::{Force, Gated, LaunchPlan, Runtime, RuntimeError, cgroup};
use crate::instance::planner::ProcessFact;
use crate::process_mark::{self, ProcessMark};

#[derive(Debug)]
pub struct ProcessRuntime {
    state_root: PathBuf,
    own_executable: PathBuf,
}

impl ProcessRuntime {
    pub fn new(state_root: &Path, own_executable: &Path) -> Self {
        Self { state_root: state_root.to_owned(), own_executable: own_executable.to_owned() }
    }

    fn run_dir(&self, id: &InstanceId) -> RunDir {
        RunDir::of(&self.state_root, id)
    }

    /// Processes that stand for the instance, whether or not their pids were ever written down.
    fn standing(&self, id: &InstanceId) -> Vec<ProcessMark> {
        let run_dir = self.run_dir(id);
        let path = run_dir.path().to_string_lossy();
        process_mark::find_by_arguments(&["runtime-init", &path])
    }

    fn known_cgroups(&self, id: &InstanceId) -> Vec<PathBuf> {
        self.run_dir(id).plan().ok().flatten().map(|plan| plan.cgroups).unwrap_or_default()
    }
}

impl Runtime for ProcessRuntime {
    fn start(&self, plan: &LaunchPlan) -> Result<Gated, RuntimeError> {
        let run_dir = self.run_dir(&plan.instance_id);
        run_dir.begin(plan)?;
        let mut command = Command::new(&self.own_executable);
        command.args(["runtime-init", "--run-dir"]).arg(run_dir.path());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env_clear().process_group(0);
        let mut child = command.spawn().map_err(RuntimeError::Spawn)?;
        let gate = child.stdin.take();
        let process = ProcessMark::of(child.id());
        // Somebody has to bury it while this agent lives; afterwards init does.
        std::thread::spawn(move || child.wait());
        match (process, gate) {
            (Some(process), Some(gate)) => Ok(Gated { process, gate }),
            _ => Err(RuntimeError::Vanished),
        }
    }

    fn inspect(&self, id: &InstanceId, generation: Generation, process: &ProcessMark) -> ProcessFact {
        let milestones = self.milestones(id, generation);
        if let Some(ended) = milestones.ended {
            let out_of_memory = cgroup::out_of_memory(&self.known_cgroups(id));
            return ProcessFact::Gone { exit_code: Some(ended.exit_code), out_of_memory };
        }
        match (process.alive(), milestones.started) {
            (true, Some(_)) => ProcessFact::Alive,
            (true, None) => ProcessFact::NotStarted { waiting: true },
            // It may have ended between the two looks.
            (false, _) if self.milestones(id, generation).ended.is_some() => {
                self.inspect(id, generation, process)
            }
            (false, Some(_)) => ProcessFact::Gone { exit_code: None, out_of_memory: false },
            (false, None) => ProcessFact::NotStarted { waiting: false },
        }
    }

    fn milestones(&self, id: &InstanceId, generation: Generation) -> Milestones {
        self.run_dir(id).milestones(generation)
    }

    fn find(&self, id: &InstanceId) -> Option<(Generation, ProcessMark)> {
        let generation = self.run_dir(id).plan().ok().flatten()?.generation;
        let inner = self.run_dir(id).inner();
        let outer = self.standing(id).into_iter().find(|mark| Some(mark.pid) != inner)?;
        Some((generation, outer))
    }

    fn stop(&self, id: &InstanceId, process: Option<&ProcessMark>, force: Force) {
        match force {
            Force::Ask => {
                let standing: BTreeSet<u32> = self.standing(id).iter().map(|mark| mark.pid).collect();
                for pid in self.members(id, process) {
                    if !standing.contains(&pid) {
                        process_mark::signal_pid(pid, Signal::TERM);
                    }
                }
            }
            Force::Kill => {
                // The first process inside takes its whole pid namespace along; who stands outside then notes the end.
                let outer = process.map(|mark| mark.pid);
                let inner = self.run_dir(id).inner();
                for pid in self.members(id, process) {
                    if Some(pid) != outer || inner.is_none() {
                        process_mark::signal_pid(pid, Signal::KILL);
                    }
                }
            }
        }
    }

    fn members(&self, id: &InstanceId, process: Option<&ProcessMark>) -> Vec<u32> {
        let mut pids: BTreeSet<u32> = cgroup::members(&self.known_cgroups(id)).into_iter().collect();
        let namespace = self.standing(id).iter().find_map(|mark| {
            let namespace = process_mark::pid_namespace(mark.pid)?;
            (Some(&namespace) != process_mark::pid_namespace(std::process::id()).as_ref())
                .then_some(namespace)
        });
        if let Some(namespace) = namespace {
            let all = process_mark::all_pids().into_iter();
            pids.extend(all.filter(|pid| process_mark::pid_namespace(*pid).as_ref() == Some(&namespace)));
        }
        pids.extend(process.filter(|mark| mark.alive()).map(|mark| mark.pid));
        pids.into_iter().collect()
    }

    fn make_cgroups(&self, id: &InstanceId) -> Vec<PathBuf> {
        cgroup::make(id)
    }

    fn cgroup_name(&self, id: &InstanceId) -> PathBuf {
        cgroup::name(id)
    }

    fn remove(&self, id: &InstanceId) -> Result<(), RuntimeError> {
        let groups = self.known_cgroups(id);
        cgroup::kill(&groups);
        for pid in self.members(id, None) {
            process_mark::signal_pid(pid, Signal::KILL);
        }
        for mark in self.standing(id) {
            mark.signal(Signal::KILL);
        }
        cgroup::remove(&groups);
        self.run_dir(id).remove().map_err(RuntimeError::Spawn)
    }
}
