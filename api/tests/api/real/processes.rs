//! Processes of a host, found by the directory they belong to.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// Every process that runs, by pid.
fn all() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// A process's command line, its arguments separated by spaces.
pub fn command_line(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).replace('\0', " ")
}

/// Living processes whose command line, environment or working directory names `place`; this one apart.
pub fn of(place: &Path) -> Vec<u32> {
    let place = place.display().to_string();
    let names = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let directory = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        command_line(*pid).contains(&place)
            || String::from_utf8_lossy(&environment).contains(&place)
            || directory.display().to_string().contains(&place)
    };
    all().into_iter().filter(|pid| *pid != std::process::id() && alive(*pid)).filter(names).collect()
}

/// Living processes of `place` whose command line has `word`.
pub fn with_word(place: &Path, word: &str) -> Vec<u32> {
    of(place).into_iter().filter(|pid| command_line(*pid).contains(word)).collect()
}

/// SIGKILL; one that is gone already is as good.
pub fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _gone = kill_process(pid, Signal::KILL);
    }
}
