//! A process that outlives its starter: named by pid and start time, because pids are used again.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessMark {
    pub pid: u32,
    /// Clock ticks after boot, field 22 of `/proc/<pid>/stat`.
    pub start_ticks: u64,
}

impl ProcessMark {
    /// The mark of a process that exists now, a zombie included.
    pub fn of(pid: u32) -> Option<Self> {
        Some(Self { pid, start_ticks: Stat::read(pid)?.start_ticks })
    }

    /// Whether that very process still runs; a zombie does not.
    pub fn alive(&self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| stat.start_ticks == self.start_ticks && stat.running)
    }

    /// Sends `signal` to that very process; a dead one is left alone.
    pub fn signal(&self, signal: rustix::process::Signal) {
        if self.alive() {
            signal_pid(self.pid, signal);
        }
    }
}

pub fn signal_pid(pid: u32, signal: rustix::process::Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        // A process that is already gone is what was wanted.
        let _gone = rustix::process::kill_process(pid, signal);
    }
}

/// What `/proc/<pid>/stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    running: bool,
    session: u32,
    start_ticks: u64,
}

impl Stat {
    fn read(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        // The name may hold spaces and parentheses; the last one closes it.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        Some(Self {
            running: !matches!(*fields.first()?, "Z" | "X"),
            session: fields.get(3)?.parse().ok()?,
            start_ticks: fields.get(19)?.parse().ok()?,
        })
    }
}

pub fn session_of(pid: u32) -> Option<u32> {
    Some(Stat::read(pid)?.session)
}

/// All pids of this pid namespace.
pub fn all_pids() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// Living processes that were started with all of `arguments`, in any place: how an orphan is found whose pid was never written down.
pub fn find_by_arguments(arguments: &[&str]) -> Vec<ProcessMark> {
    all_pids()
        .into_iter()
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
            arguments.iter().all(|wanted| words.contains(&wanted.as_bytes()))
        })
        .filter_map(ProcessMark::of)
        .filter(ProcessMark::alive)
        .collect()
}

/// The pid namespace of a process, as `/proc` names it.
pub fn pid_namespace(pid: u32) -> Option<String> {
    Some(std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_true_for_one_process_only() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mark = ProcessMark::of(child.id()).unwrap();
        assert!(mark.alive());
        assert!(!ProcessMark { start_ticks: mark.start_ticks + 1, ..mark }.alive());
        mark.signal(rustix::process::Signal::KILL);
        child.wait().unwrap();
        assert!(!mark.alive());
    }

    #[test]
    fn names_with_parentheses_are_read_right() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9876 1 2";
        assert_eq!(Stat::parse(text), Some(Stat { running: true, session: 7, start_ticks: 9876 }));
    }
}
