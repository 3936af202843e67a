//! `tarn-agent exec`: a command inside a running instance, for operators and tests. Same namespaces, same cgroup, same limits;
//! nothing about the pool depends on the environment, so an empty one works too.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tarn_protocol::ids::InstanceId;

use super::run_dir::RunDir;
use super::{RuntimeError, capabilities, cgroup};
use crate::state_dir::StateDir;

/// Runs `command` inside and returns its exit code. Must be called before this process has threads.
pub fn exec(state: &StateDir, id: &InstanceId, command: &[String]) -> Result<i32, RuntimeError> {
    let run_dir = RunDir::of(state.root(), id);
    let not_running = || RuntimeError::NotRunning(id.clone());
    let plan = run_dir.plan()?.ok_or_else(not_running)?;
    let milestones = run_dir.milestones(plan.generation);
    let inner = run_dir.inner().filter(|_| milestones.started.is_some() && milestones.ended.is_none());
    let inner = inner.ok_or_else(not_running)?;
    cgroup::enter(&plan.cgroups, std::process::id());
    let open = |name: &str| File::open(format!("/proc/{inner}/ns/{name}"));
    let kinds = [
        ("pid", LinkNameSpaceType::ProcessID),
        ("uts", LinkNameSpaceType::HostNameAndNISDomainName),
        ("ipc", LinkNameSpaceType::InterProcessCommunication),
        ("mnt", LinkNameSpaceType::Mount),
    ];
    // All are opened first: behind the mount namespace this host's /proc is gone.
    let files: Vec<_> = kinds.iter().map(|(name, kind)| open(name).map(|file| (file, *kind))).collect();
    for file in files {
        let (file, kind) = file.map_err(RuntimeError::Enter)?;
        move_into_link_name_space(file.as_fd(), Some(kind))
            .map_err(|error| RuntimeError::Enter(error.into()))?;
    }
    capabilities::narrow();
    let [program, arguments @ ..] = command else { return Err(not_running()) };
    let status = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(plan.env.iter().cloned())
        .current_dir(&plan.home)
        .process_group(0)
        .status()
        .map_err(RuntimeError::Spawn)?;
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}
