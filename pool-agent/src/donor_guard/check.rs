//! `tarn-agent guard-check`: the guard's own eyes and hands on a real card, by themselves. Two processes make a context on the card: one
//! that the agent allows, one that stands in an instance's cgroup and is not. The second has to be found and ended, the first left alone.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde::Serialize;
use tarn_protocol::control::Escape;
use tarn_protocol::ids::{GpuUuid, InstanceId};
use tarn_protocol::units::{Bytes, MonoMillis, Timestamp};

use super::allowed::Allowed;
use super::owner::{self, Identity};
use super::roster::Seat;
use super::sentry::{Act, EscapePolicy, Sentry, Sighting};
use super::watch::{LOOK_EVERY, kill};
use crate::clock::HostClock;
use crate::nvml::card::Card;
use crate::nvml::host::{HostCards, NoDriver};
use crate::probe::cuda;
use crate::probe::words::ProbeError;
use crate::runtime::cgroup;

const SAMPLE_WITHIN: Duration = Duration::from_secs(2);
/// Held by each of the two processes beside their contexts.
const HELD: Bytes = Bytes::mib(64);
/// A driver that starts cold takes seconds for the first context.
const READY_WITHIN: Duration = Duration::from_mins(1);

#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    #[error(transparent)]
    Driver(#[from] NoDriver),
    #[error("there is no card {0} here")]
    NoCard(String),
    #[error("cannot start a process of the check")]
    Spawn(#[source] std::io::Error),
    #[error("a process of the check got no context: {0}")]
    NoContext(String),
}

/// What happened, for people.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    pub gpu: String,
    pub driver_version: String,
    /// The card keeps account of the dead; never switched by us.
    pub accounting: bool,
    /// Where the process that is not allowed stood; empty where this machine lets none be made.
    pub cgroups: Vec<PathBuf>,
    pub allowed_pid: u32,
    pub outside_pid: u32,
    /// Every pid that NVML listed at any look.
    pub listed_pids: Vec<u32>,
    /// From the moment at which its context was ready.
    pub found_after_ms: Option<u64>,
    pub gone_after_ms: Option<u64>,
    pub allowed_left_alone: bool,
    pub evidence: Option<Escape>,
    /// Whether all is as it has to be, and if not, what is not.
    pub passed: bool,
    pub remarks: Vec<String>,
}

/// One of the two processes: makes a context once it may, says so, and stays until it is ended.
pub fn hold(card: &GpuUuid) -> Result<(), ProbeError> {
    let mut line = String::new();
    // Not before it stands where it should; whoever closes our input wants us gone.
    if std::io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
        return Ok(());
    }
    let device = cuda::Card::open(card)?;
    device.enter()?;
    device.allocate(HELD.get())?;
    let mut out = std::io::stdout();
    let _told = writeln!(out, "ready").and_then(|()| out.flush());
    line.clear();
    let _until_closed = std::io::stdin().read_line(&mut line);
    Ok(())
}

pub fn run(
    card: Option<&GpuUuid>,
    driver_dir: Option<&Path>,
    own_executable: &Path,
    patience: Duration,
    clock: &HostClock,
) -> Result<Report, CheckError> {
    let cards = HostCards::open(driver_dir)?;
    let uuid = card.cloned().or_else(|| cards.uuids().first().cloned());
    let uuid = uuid.ok_or_else(|| CheckError::NoCard("at all".to_owned()))?;
    let found = cards.card(&uuid).ok_or_else(|| CheckError::NoCard(uuid.to_string()))?;
    let instance = InstanceId::new(Timestamp::from_micros(0), u128::from(std::process::id()));
    let groups = cgroup::make(&instance);
    let device = cards.nvml().device_by_uuid(uuid.as_str());
    let mut report = Report {
        gpu: uuid.to_string(),
        driver_version: cards.driver_version().to_owned(),
        accounting: device.is_ok_and(|device| device.is_accounting_enabled().unwrap_or(false)),
        ..Report::default()
    };
    let held = Held::start(own_executable, driver_dir, &uuid, &groups);
    let outcome = held.and_then(|mut held| {
        report.allowed_pid = held.allowed.id();
        report.outside_pid = held.outside.id();
        if held.enclosed {
            report.cgroups.clone_from(&groups);
        }
        held.ready()?;
        let since = clock.now();
        watch(found, &held, &instance, (since, patience), clock, &mut report);
        report.allowed_left_alone = matches!(held.allowed.try_wait(), Ok(None));
        Ok(())
    });
    cgroup::remove(&groups);
    outcome?;
    judge(&mut report);
    Ok(report)
}

struct Held {
    allowed: Child,
    outside: Child,
    marks: Allowed,
    words: Receiver<String>,
    /// The one outside really stands in the cgroup.
    enclosed: bool,
}

impl Held {
    fn start(
        own_executable: &Path,
        driver_dir: Option<&Path>,
        card: &GpuUuid,
        groups: &[PathBuf],
    ) -> Result<Self, CheckError> {
        let spawn = || {
            let mut command = Command::new(own_executable);
            command.args(["hold-context", "--card", card.as_str()]);
            command.env("CUDA_VISIBLE_DEVICES", card.as_str());
            if let Some(directory) = driver_dir {
                command.env("LD_LIBRARY_PATH", directory);
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(CheckError::Spawn)
        };
        let (mut allowed, mut outside) = (spawn()?, spawn()?);
        let marks = Allowed::default();
        marks.admit(allowed.id());
        let enclosed = cgroup::enter(groups, outside.id());
        let (told, words) = channel();
        for child in [&mut allowed, &mut outside] {
            let pid = child.id();
            let Some(stdout) = child.stdout.take() else { continue };
            let told = told.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let _late = told.send(format!("{line} {pid}"));
                }
            });
        }
        Ok(Self { allowed, outside, marks, words, enclosed })
    }

    /// Lets both make their contexts and waits until they have them.
    fn ready(&mut self) -> Result<(), CheckError> {
        for child in [&mut self.allowed, &mut self.outside] {
            let stdin = child.stdin.as_mut();
            stdin.map_or(Ok(()), |stdin| stdin.write_all(b"go\n")).map_err(CheckError::Spawn)?;
            let word = self.words.recv_timeout(READY_WITHIN);
            word.map_err(|_| CheckError::NoContext(format!("process {}", child.id())))?;
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for child in [&mut self.allowed, &mut self.outside] {
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// The guard's loop, on this card and these two processes.
fn watch(
    card: &Card,
    held: &Held,
    instance: &InstanceId,
    (since, patience): (MonoMillis, Duration),
    clock: &HostClock,
    report: &mut Report,
) {
    let elsewhere = GpuUuid::from_bytes([0; 16]);
    let seat = Seat { primary: elsewhere, donors: vec![card.uuid().clone()] };
    let seats = BTreeMap::from([(instance.clone(), seat)]);
    let mut sentry = Sentry::new(card.uuid().clone(), EscapePolicy::Stop);
    let after = |now: MonoMillis| now.get().saturating_sub(since.get());
    // Where no cgroup can be made, the check itself says whose the process is.
    let member = |pid| (!held.enclosed && pid == held.outside.id()).then(|| instance.clone());
    while after(clock.now()) < u64::try_from(patience.as_millis()).unwrap_or(u64::MAX) {
        let Ok(sample) = card.sample(SAMPLE_WITHIN) else { continue };
        let mut listed: Vec<u32> = sample.processes.iter().map(|(pid, _)| *pid).collect();
        report.listed_pids.append(&mut listed);
        let identified = sample.processes.iter().filter_map(|(pid, bytes)| {
            let identity = owner::identify(*pid, member)?;
            Some(Sighting { identity, bytes: *bytes })
        });
        let foreign = |Identity { mark, .. }: &Identity| !held.marks.has(mark);
        let seen: Vec<Sighting> = identified.filter(|sighting| foreign(&sighting.identity)).collect();
        let there = sample.processes.iter().any(|(pid, _)| *pid == held.outside.id());
        for act in sentry.look(&seen, &seats, clock.now()) {
            match act {
                Act::Kill(mark) => kill(mark),
                Act::Tell(escape) if escape.pid == held.outside.id() => {
                    report.found_after_ms.get_or_insert(after(clock.now()));
                    report.evidence.get_or_insert(*escape);
                }
                Act::Tell(_) => {}
            }
        }
        if report.found_after_ms.is_some() && !there {
            report.gone_after_ms = Some(after(clock.now()));
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    report.listed_pids.sort_unstable();
    report.listed_pids.dedup();
}

fn judge(report: &mut Report) {
    let mut remark = |wrong: bool, text: &str| {
        if wrong {
            report.remarks.push(text.to_owned());
        }
        wrong
    };
    let listed = |pid: &u32| report.listed_pids.contains(pid);
    let strange = !listed(&report.outside_pid) && !report.listed_pids.is_empty();
    let mut failed = remark(
        report.listed_pids.is_empty(),
        "NVML lists no process at all: the guard is blind here (a container hides them)",
    );
    failed |= remark(strange, "NVML lists pids of another namespace: the agent has to run in the host's");
    failed |= remark(!report.allowed_left_alone, "the allowed process was ended");
    failed |= remark(report.gone_after_ms.is_none(), "the process was not seen to go");
    remark(
        report.cgroups.is_empty(),
        "no cgroup can be made here: who the process belongs to was told by the check itself",
    );
    report.passed = !failed;
}
