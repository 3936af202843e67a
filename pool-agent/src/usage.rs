//! Evidence of running time: half-open intervals of the host's monotonic clock, on disk until the control plane has them.
//!
//! The file is a log of lines; the state is what they add up to ([`Tally`], pure). A claim starts where the last durable one of
//! the same instance, generation and boot ended, so intervals meet but never overlap, and nothing is claimed of a time in which
//! nobody saw the instance alive.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tarn_protocol::control::UsageEvidence;
use tarn_protocol::ids::{GpuUuid, InstanceId};
use tarn_protocol::units::{BootId, Generation, MonoMillis, Sequence};

use crate::backoff::entropy;
use crate::durable_file::{self, DurableError};
use crate::failpoint::Failpoints;
use crate::state_dir::StateDir;

/// Lines after which the log is written anew, if they are many more than what is still needed.
const COMPACT_LINES: usize = 4096;
/// Evidence that waits; above, claims are made rarer, so that days without the control plane still fit a report.
const BACKLOG_DENSE: usize = 512;
const SPARSE_INTERVAL_MS: u64 = 60_000;
/// Beyond any number that counting reaches, and far below what the wire carries.
const NUMBERS_AFTER_LOSS: u64 = 1 << 44;
const NUMBERS_SPREAD: u64 = (1 << 52) - 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Evidence(UsageEvidence),
    /// The control plane has everything up to here.
    Acknowledged(Sequence),
    /// Written by compaction: where the next claim of a run starts.
    Mark(Run, MonoMillis),
    /// Written by compaction.
    Next(Sequence),
}

/// What evidence is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Run {
    pub boot_id: BootId,
    pub instance_id: InstanceId,
    pub generation: Generation,
}

/// What the lines add up to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    next: u64,
    marks: BTreeMap<Run, MonoMillis>,
    waiting: Vec<UsageEvidence>,
}

impl Tally {
    /// Every line of a log. The last may be torn: it was not durable yet, so nobody was told of it.
    fn add_up(&mut self, text: &[u8]) -> Option<Damage> {
        let mut lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
        let last = lines.pop().unwrap_or_default();
        let mut unreadable = 0;
        for line in lines {
            match serde_json::from_slice(line) {
                Ok(line) => self.apply(line),
                Err(_) => unreadable += 1,
            }
        }
        if let Ok(line) = serde_json::from_slice(last) {
            self.apply(line);
        }
        (unreadable > 0).then_some(Damage::Unreadable(unreadable))
    }

    fn apply(&mut self, line: Line) {
        match line {
            Line::Evidence(evidence) => {
                self.next = self.next.max(evidence.seq.get() + 1);
                let run = Run {
                    boot_id: evidence.boot_id.clone(),
                    instance_id: evidence.instance_id.clone(),
                    generation: evidence.generation,
                };
                self.marks.insert(run, evidence.to_mono_ms);
                self.waiting.push(evidence);
            }
            Line::Acknowledged(through) => self.waiting.retain(|evidence| evidence.seq > through),
            Line::Mark(run, at) => {
                self.marks.insert(run, at);
            }
            Line::Next(next) => self.next = self.next.max(next.get()),
        }
    }

    /// The next piece of evidence for a run that was ready at `ready` and seen alive until `until`.
    fn claim(&self, claim: &Claim) -> Option<UsageEvidence> {
        let from = self.marks.get(&claim.run).copied().unwrap_or(claim.ready).max(claim.ready);
        (claim.until > from).then(|| UsageEvidence {
            seq: Sequence::new(self.next.max(1)),
            boot_id: claim.run.boot_id.clone(),
            instance_id: claim.run.instance_id.clone(),
            generation: claim.run.generation,
            primary: claim.primary.clone(),
            from_mono_ms: from,
            to_mono_ms: claim.until,
            excused_ms: if claim.excused { claim.until.get() - from.get() } else { 0 },
        })
    }

    fn needed(&self) -> usize {
        self.marks.len() + self.waiting.len() + 1
    }
}

/// A request for evidence.
#[derive(Debug, Clone)]
pub struct Claim {
    pub run: Run,
    pub primary: GpuUuid,
    pub ready: MonoMillis,
    pub until: MonoMillis,
    /// The instance could not work since its last claim, for a reason of ours.
    pub excused: bool,
}

#[derive(Debug)]
pub struct UsageSpool {
    path: PathBuf,
    failpoints: Failpoints,
    damage: Option<Damage>,
    inner: Mutex<Spool>,
}

/// What was found wrong with the log when it was opened. What runs is claimed again from its start, which bills no millisecond twice; what
/// had ended and was not acknowledged yet is lost with the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// A host that has joined has no log.
    Lost,
    /// So many lines before the last cannot be read.
    Unreadable(usize),
}

#[derive(Debug)]
struct Spool {
    tally: Tally,
    file: File,
    lines: usize,
    /// A write failed: part of a line may be at the end.
    torn: bool,
}

impl UsageSpool {
    pub fn open(state: &StateDir, failpoints: &Failpoints) -> Result<Self, DurableError> {
        let path = state.file("usage.jsonl");
        let text = match std::fs::read(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(source) => return Err(DurableError::read(&path, source)),
        };
        let mut tally = Tally::default();
        let damage = match &text {
            Some(text) => tally.add_up(text),
            None => state.file("identity.json").exists().then_some(Damage::Lost),
        };
        if damage.is_some() {
            // The control plane knows each number for ever, and the highest that it has seen is lost: go on from one that it has not.
            tally.next = tally.next.max(NUMBERS_AFTER_LOSS + (entropy() & NUMBERS_SPREAD));
        }
        let (file, torn) = match rewrite(&path, &tally) {
            Ok(file) => (file, false),
            Err(error) => {
                // A full disk keeps no agent from looking after what runs; the next line is written once there is room.
                tracing::error!(%error, "usage evidence cannot be written yet");
                (appended(&path)?, true)
            }
        };
        let lines = tally.needed();
        Ok(Self {
            path,
            failpoints: failpoints.clone(),
            damage,
            inner: Mutex::new(Spool { tally, file, lines, torn }),
        })
    }

    pub fn damage(&self) -> Option<Damage> {
        self.damage
    }

    /// Writes evidence up to `claim.until` down; when this returns, it will reach the control plane.
    pub fn claim(&self, claim: &Claim) -> Result<(), DurableError> {
        let mut spool = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(evidence) = spool.tally.claim(claim) else { return Ok(()) };
        self.failpoints.hit("usage.before_append");
        self.append(&mut spool, Line::Evidence(evidence))?;
        self.failpoints.hit("usage.after_append");
        Ok(())
    }

    pub fn acknowledged(&self, through: Sequence) -> Result<(), DurableError> {
        let mut spool = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let news = spool.tally.waiting.first().is_some_and(|oldest| oldest.seq <= through);
        if news { self.append(&mut spool, Line::Acknowledged(through)) } else { Ok(()) }
    }

    /// The run is over and its last evidence written.
    pub fn forget(&self, run: &Run) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).tally.marks.remove(run);
    }

    /// The oldest unacknowledged evidence, at most `count`.
    pub fn waiting(&self, count: usize) -> Vec<UsageEvidence> {
        let spool = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        spool.tally.waiting.iter().take(count).cloned().collect()
    }

    /// How long a run should go between claims: longer once evidence piles up.
    pub fn interval_ms(&self, usual_ms: u64) -> u64 {
        let spool = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if spool.tally.waiting.len() > BACKLOG_DENSE { usual_ms.max(SPARSE_INTERVAL_MS) } else { usual_ms }
    }

    fn append(&self, spool: &mut Spool, line: Line) -> Result<(), DurableError> {
        if spool.torn {
            // Else this line would continue the torn one, and both would be unreadable.
            self.compact(spool)?;
        }
        let written = write_line(&mut spool.file, &line).and_then(|()| spool.file.sync_data());
        spool.torn = written.is_err();
        written.map_err(|source| DurableError::write(&self.path, source))?;
        spool.tally.apply(line);
        spool.lines += 1;
        if spool.lines > COMPACT_LINES && spool.lines > 2 * spool.tally.needed() {
            self.compact(spool)?;
        }
        Ok(())
    }

    fn compact(&self, spool: &mut Spool) -> Result<(), DurableError> {
        spool.file = rewrite(&self.path, &spool.tally)?;
        spool.lines = spool.tally.needed();
        spool.torn = false;
        Ok(())
    }
}

fn write_line(file: &mut File, line: &Line) -> std::io::Result<()> {
    let mut bytes = serde_json::to_vec(line)?;
    bytes.push(b'\n');
    file.write_all(&bytes)
}

/// Replaces the log by the shortest one that adds up to the same.
fn rewrite(path: &std::path::Path, tally: &Tally) -> Result<File, DurableError> {
    let mut lines = vec![Line::Next(Sequence::new(tally.next))];
    lines.extend(tally.waiting.iter().cloned().map(Line::Evidence));
    lines.extend(tally.marks.iter().map(|(run, at)| Line::Mark(run.clone(), *at)));
    let mut bytes = Vec::new();
    for line in &lines {
        let text = serde_json::to_vec(line)
            .map_err(|source| DurableError::Parse { path: path.to_owned(), source })?;
        bytes.extend(text);
        bytes.push(b'\n');
    }
    durable_file::replace(path, &bytes)?;
    appended(path)
}

fn appended(path: &std::path::Path) -> Result<File, DurableError> {
    let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path);
    file.map_err(|source| DurableError::write(path, source))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tarn_protocol::units::Timestamp;

    fn claim(instance: u128, generation: i64, ready: u64, until: u64) -> Claim {
        Claim {
            run: Run {
                boot_id: BootId::new("boot"),
                instance_id: InstanceId::new(Timestamp::from_micros(0), instance),
                generation: Generation::new(generation),
            },
            primary: GpuUuid::from_bytes([1; 16]),
            ready: MonoMillis::new(ready),
            until: MonoMillis::new(until),
            excused: false,
        }
    }

    #[test]
    fn a_torn_last_line_is_as_if_it_had_not_been_written() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let spool = UsageSpool::open(&state, &Failpoints::default()).unwrap();
        spool.claim(&claim(1, 1, 100, 200)).unwrap();
        spool.claim(&claim(1, 1, 100, 300)).unwrap();
        let text = std::fs::read_to_string(state.file("usage.jsonl")).unwrap();
        std::fs::write(state.file("usage.jsonl"), &text[..text.len() - 9]).unwrap();
        let spool = UsageSpool::open(&state, &Failpoints::default()).unwrap();
        spool.claim(&claim(1, 1, 100, 350)).unwrap();
        let spans: Vec<_> = spool
            .waiting(9)
            .iter()
            .map(|found| (found.seq.get(), found.from_mono_ms.get(), found.to_mono_ms.get()))
            .collect();
        assert_eq!(spans, [(1, 100, 200), (2, 200, 350)]);
    }

    #[test]
    fn evidence_after_a_write_that_failed_half_way_is_readable() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let path = state.file("usage.jsonl");
        let spool = UsageSpool::open(&state, &Failpoints::default()).unwrap();
        spool.claim(&claim(1, 1, 100, 200)).unwrap();
        // A disk that takes no more: the file answers every write with an error, half a line is on it.
        spool.inner.lock().unwrap().file = OpenOptions::new().read(true).open(&path).unwrap();
        assert!(spool.claim(&claim(1, 1, 100, 300)).is_err());
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"evid").unwrap();
        spool.claim(&claim(1, 1, 100, 350)).unwrap();
        let spool = UsageSpool::open(&state, &Failpoints::default()).unwrap();
        let spans = spool.waiting(9).into_iter().map(|found| (found.seq.get(), found.to_mono_ms.get()));
        assert_eq!(spans.collect::<Vec<_>>(), [(1, 200), (2, 350)]);
    }

    #[test]
    fn a_lost_or_damaged_log_is_noticed_and_its_numbers_are_never_used_again() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        let path = state.file("usage.jsonl");
        let open = || UsageSpool::open(&state, &Failpoints::default()).unwrap();
        assert_eq!(open().damage(), None, "a host that never joined has nothing to lose");
        std::fs::write(state.file("identity.json"), "{}").unwrap();
        open().claim(&claim(1, 1, 100, 200)).unwrap();
        open().claim(&claim(1, 1, 100, 300)).unwrap();
        assert_eq!(open().damage(), None);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen("evidence", "evid\u{0}", 1)).unwrap();
        let spool = open();
        assert_eq!(spool.damage(), Some(Damage::Unreadable(1)));
        assert_eq!(spool.waiting(9).len(), 1, "the rest is kept");
        drop(spool);
        std::fs::remove_file(&path).unwrap();
        let spool = open();
        assert_eq!(spool.damage(), Some(Damage::Lost));
        spool.claim(&claim(1, 1, 100, 400)).unwrap();
        let again = &spool.waiting(9)[0];
        assert!(again.seq.get() >= NUMBERS_AFTER_LOSS && i64::try_from(again.seq.get()).is_ok());
        assert_eq!((again.from_mono_ms.get(), again.to_mono_ms.get()), (100, 400), "all of the run");
        assert_eq!(open().damage(), None, "it is said once");
    }

    proptest! {
        // Every step syncs a file.
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Whatever is claimed, acknowledged and restarted: numbers grow, intervals of a run meet and never overlap.
        #[test]
        fn evidence_tiles_the_time(steps in proptest::collection::vec((0u8..4, 0u128..3, 1u64..500), 1..80)) {
            let directory = tempfile::tempdir().unwrap();
            let state = StateDir::open(directory.path()).unwrap();
            let mut spool = UsageSpool::open(&state, &Failpoints::default()).unwrap();
            let mut now = 1000;
            let mut seen: BTreeMap<u64, UsageEvidence> = BTreeMap::new();
            for (what, instance, step) in steps {
                now += step;
                match what {
                    0 | 1 => spool.claim(&claim(instance, 1, 1000, now)).unwrap(),
                    2 => {
                        let through = spool.waiting(2).last().map(|last| last.seq);
                        spool.acknowledged(through.unwrap_or_default()).unwrap();
                    }
                    _ => spool = UsageSpool::open(&state, &Failpoints::default()).unwrap(),
                }
                for evidence in spool.waiting(usize::MAX) {
                    let known = seen.insert(evidence.seq.get(), evidence.clone());
                    prop_assert!(known.is_none_or(|known| known == evidence));
                }
            }
            let mut ends: BTreeMap<InstanceId, MonoMillis> = BTreeMap::new();
            for evidence in seen.into_values() {
                let before = ends.insert(evidence.instance_id.clone(), evidence.to_mono_ms);
                prop_assert_eq!(evidence.from_mono_ms, before.unwrap_or(MonoMillis::new(1000)));
                prop_assert!(evidence.to_mono_ms > evidence.from_mono_ms);
            }
        }
    }
}
