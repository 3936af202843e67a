//! The process that stands for an instance on the host: it waits at the gate, makes the pid namespace, keeps the output within its
//! bound, and writes down how the command ended. It needs no agent to do so.

use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use rustix::thread::UnshareFlags;

use super::output_file::OutputFile;
use super::run_dir::{Ended, RunDir};
use super::{LaunchPlan, cgroup};
use crate::clock::HostClock;

/// What the agent writes to open the gate; end of file instead means that it died, and so does the instance, unborn.
pub const OPEN: u8 = b'g';
/// Exit code of a process whose gate never opened.
const SHUT: i32 = 97;
const SETUP_FAILED: i32 = 125;

/// Runs to the end of the instance; returns the process's exit code.
pub fn run(run_dir: &Path, clock: &HostClock) -> i32 {
    let run_dir = RunDir::at(run_dir);
    let mut key = [0];
    if std::io::stdin().read_exact(&mut key).is_err() || key[0] != OPEN {
        return SHUT;
    }
    let Ok(Some(plan)) = run_dir.plan() else { return SETUP_FAILED };
    let exit_code = match live(&run_dir, &plan) {
        Ok(status) => exit_code(status),
        Err(error) => {
            if let Ok(mut witness) = run_dir.open_witness() {
                witness.failed(&error.to_string());
            }
            SETUP_FAILED
        }
    };
    let ended = Ended { generation: plan.generation, mono_ms: clock.now(), exit_code };
    match run_dir.ended(&ended) {
        Ok(()) => 0,
        Err(_) => SETUP_FAILED,
    }
}

fn live(run_dir: &RunDir, plan: &LaunchPlan) -> std::io::Result<ExitStatus> {
    cgroup::enter(&plan.cgroups, std::process::id());
    let (reader, writer) = std::io::pipe()?;
    let output = OutputFile::open(&plan.log)?;
    // Before the pid namespace changes: no thread can be made after.
    let copying = std::thread::spawn(move || output.copy_from(reader));
    let own_pids = unshare_pids();
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["runtime-init", "--inner"]);
    if own_pids {
        command.arg("--own-pids");
    }
    command.arg("--run-dir").arg(run_dir.path());
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    command.env_clear();
    let mut inner = command.spawn()?;
    drop(command);
    // Only a quicker way to find it: the namespace is found through this process too.
    let _unwritten = run_dir.set_inner(inner.id());
    let status = inner.wait()?;
    if own_pids {
        // Everything inside is dead, so the pipe has no writer left.
        let _panicked = copying.join();
    }
    Ok(status)
}

fn unshare_pids() -> bool {
    super::inner::unshare(UnshareFlags::NEWPID).is_ok()
}

fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
