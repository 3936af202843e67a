//! The instance's cgroups: where its processes are counted, recognised and, on v2, killed as one.
//!
//! Version 2 where it has the controllers, else each version 1 hierarchy by itself, else none: a machine that allows no
//! cgroups still runs instances, with a logged note, and they are then recognised by pid namespace alone.

use std::path::{Path, PathBuf};

use tarn_protocol::ids::InstanceId;

pub const ROOT: &str = "/sys/fs/cgroup";
/// Above every group of an instance.
pub const GROUP: &str = "tarn";
/// Hierarchies of version 1 that are used; `pids` first, because it names the instance.
const CONTROLLERS: [&str; 2] = ["pids", "memory"];
/// A tenant may run thousands of processes, not exhaust the host's pids.
const PIDS_MAX: u32 = 4096;
const REMOVE_TRIES: u32 = 50;
const REMOVE_AGAIN_AFTER: std::time::Duration = std::time::Duration::from_millis(20);

/// The name of an instance's cgroup below a hierarchy's root.
pub fn name(id: &InstanceId) -> PathBuf {
    Path::new("/").join(GROUP).join(id.as_str())
}

/// Directories of the cgroups of `id`, made if need be.
pub fn make(id: &InstanceId) -> Vec<PathBuf> {
    let root = Path::new(ROOT);
    if root.join("cgroup.controllers").exists() {
        return make_v2(root, id).into_iter().collect();
    }
    let made = CONTROLLERS.iter().filter_map(|controller| {
        let hierarchy = root.join(controller);
        if !hierarchy.join("cgroup.procs").exists() {
            return None;
        }
        let group = hierarchy.join(GROUP).join(id.as_str());
        match std::fs::create_dir_all(&group) {
            Ok(()) => Some(group),
            Err(error) => {
                tracing::warn!(%error, controller, "no cgroup for the instance");
                None
            }
        }
    });
    let groups: Vec<PathBuf> = made.collect();
    for group in &groups {
        limit(group);
    }
    groups
}

fn make_v2(root: &Path, id: &InstanceId) -> Option<PathBuf> {
    let parent = root.join(GROUP);
    let group = parent.join(id.as_str());
    if let Err(error) = std::fs::create_dir_all(&group) {
        tracing::warn!(%error, "no cgroup for the instance");
        return None;
    }
    for directory in [root, parent.as_path()] {
        if let Err(error) = std::fs::write(directory.join("cgroup.subtree_control"), "+pids +memory") {
            tracing::warn!(%error, directory = %directory.display(), "cgroup without limits");
        }
        // Few kernels have it, and only an operator's configuration asks for it; that it is missing is told then.
        let _few_have_it = std::fs::write(directory.join("cgroup.subtree_control"), "+dmem");
    }
    limit(&group);
    Some(group)
}

fn limit(group: &Path) {
    let file = group.join("pids.max");
    if file.exists()
        && let Err(error) = std::fs::write(&file, PIDS_MAX.to_string())
    {
        tracing::warn!(%error, "no limit on the instance's processes");
    }
}

/// Puts a process into every one of `groups`; whether any took it.
pub fn enter(groups: &[PathBuf], pid: u32) -> bool {
    let entered =
        groups.iter().filter(|group| match std::fs::write(group.join("cgroup.procs"), pid.to_string()) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, group = %group.display(), "cannot enter the cgroup");
                false
            }
        });
    entered.count() > 0
}

pub fn members(groups: &[PathBuf]) -> Vec<u32> {
    let texts = groups.iter().filter_map(|group| std::fs::read_to_string(group.join("cgroup.procs")).ok());
    let mut pids: Vec<u32> = texts.flat_map(|text| parse(&text)).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}

fn parse(text: &str) -> Vec<u32> {
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Kills every member at once, where the kernel can.
pub fn kill(groups: &[PathBuf]) {
    for group in groups {
        let file = group.join("cgroup.kill");
        if file.exists()
            && let Err(error) = std::fs::write(&file, "1")
        {
            tracing::warn!(%error, "cannot kill the cgroup as one");
        }
    }
}

/// Whether the kernel killed a member for memory.
pub fn out_of_memory(groups: &[PathBuf]) -> bool {
    groups.iter().any(|group| {
        ["memory.events", "memory.oom_control"]
            .iter()
            .filter_map(|name| std::fs::read_to_string(group.join(name)).ok())
            .any(|text| oom_kills(&text) > 0)
    })
}

fn oom_kills(text: &str) -> u64 {
    let counts = text.lines().filter_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok());
    counts.sum()
}

/// Removes the cgroups. The kernel lets go of dead members a little after their death.
pub fn remove(groups: &[PathBuf]) {
    for group in groups {
        let mut tries = REMOVE_TRIES;
        while let Err(error) = std::fs::remove_dir(group) {
            tries -= 1;
            if error.kind() == std::io::ErrorKind::NotFound {
                break;
            }
            if tries == 0 {
                tracing::warn!(%error, group = %group.display(), "cgroup stays");
                break;
            }
            std::thread::sleep(REMOVE_AGAIN_AFTER);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oom_kills_are_read_from_both_versions() {
        assert_eq!(oom_kills("low 0\noom 2\noom_kill 3\n"), 3);
        assert_eq!(oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n"), 0);
    }
}
