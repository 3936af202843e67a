//! The first process inside an instance: it arranges what the instance sees, starts the command, and buries every orphan.

#![allow(unsafe_code)] // unshare has no safe form; it is called before any thread of this process exists.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::process::{Signal, WaitOptions, WaitStatus};
use rustix::thread::UnshareFlags;

use super::run_dir::{RunDir, Started, Witness};
use super::{LaunchPlan, capabilities, mounts};
use crate::clock::HostClock;

const SETUP_FAILED: i32 = 125;
const NOT_FOUND: i32 = 127;

/// Gives the calling thread namespaces of its own.
pub fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: file descriptors stay shared (no FILES flag), so no other code's descriptors change meaning.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Runs to the end of the command; returns its exit code, 128 and the signal for a killed one.
pub fn run(run_dir: &Path, own_pids: bool, clock: &HostClock) -> i32 {
    // The instance does not outlive the process that stands for it on the host.
    let _unsupported = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if !own_pids {
        let _unsupported = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
    let run_dir = RunDir::at(run_dir);
    let Ok(Some(plan)) = run_dir.plan() else { return SETUP_FAILED };
    let Ok(mut witness) = run_dir.open_witness() else { return SETUP_FAILED };
    let note = isolate(&plan, own_pids);
    if let Some(note) = &note {
        eprintln!("tarn: {note}");
    }
    begin(&plan, &mut witness, note, clock).unwrap_or_else(|(code, text)| {
        witness.failed(&text);
        eprintln!("tarn: {text}");
        code
    })
}

/// Namespaces and mounts as far as the machine allows; what it does not allow is said.
fn isolate(plan: &LaunchPlan, own_pids: bool) -> Option<String> {
    if let Err(error) = unshare(UnshareFlags::NEWNS) {
        return Some(format!("no mount namespace on this host ({error}): isolation is reduced"));
    }
    for (flags, name) in [(UnshareFlags::NEWUTS, "host name"), (UnshareFlags::NEWIPC, "ipc")] {
        if let Err(error) = unshare(flags) {
            eprintln!("tarn: no {name} namespace on this host ({error})");
        } else if flags == UnshareFlags::NEWUTS {
            let _kept = rustix::system::sethostname(plan.instance_id.as_str().as_bytes());
        }
    }
    mounts::arrange(plan, own_pids).err().map(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        format!("{error} ({cause}): isolation is reduced")
    })
}

fn begin(
    plan: &LaunchPlan,
    witness: &mut Witness,
    note: Option<String>,
    clock: &HostClock,
) -> Result<i32, (i32, String)> {
    let [program, arguments @ ..] = plan.command.as_slice() else {
        return Err((SETUP_FAILED, "the command is empty".to_owned()));
    };
    capabilities::narrow();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(plan.env.iter().cloned())
        .current_dir(&plan.home)
        .process_group(0);
    let started = Started { generation: plan.generation, mono_ms: clock.now(), note };
    witness.started(&started).map_err(|error| (SETUP_FAILED, format!("cannot note the start: {error}")))?;
    let child = command.spawn().map_err(|error| (NOT_FOUND, format!("cannot run {program}: {error}")))?;
    Ok(bury_until(child.id()))
}

/// Waits for every child that comes to it, until `main` has ended. The rest ends with this process's pid namespace.
fn bury_until(main: u32) -> i32 {
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_nonzero().get().cast_unsigned() == main => {
                return exit_code(status);
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return SETUP_FAILED,
        }
    }
}

fn exit_code(status: WaitStatus) -> i32 {
    status.exit_status().unwrap_or_else(|| 128 + status.terminating_signal().unwrap_or(0))
}
