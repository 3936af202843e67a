//! Who may call: the kernel's word on the peer (`SO_PEERCRED`, `/proc`), never the peer's own.

use std::path::{Path, PathBuf};

use rustix::net::UCred;

/// How the processes of this pool's instance are recognised. All given rules must hold.
#[derive(Debug, Clone, Default)]
pub struct Admission {
    /// User ids of the instance.
    pub tenant_uids: Vec<u32>,
    /// The instance's cgroup, as `/proc/<pid>/cgroup` names it, for example `/tarn.slice/ins_…`.
    pub tenant_cgroup: Option<PathBuf>,
    /// The instance's pid namespace, as `/proc/<pid>/ns/pid` names it, for example `pid:[4026532201]`.
    pub tenant_pid_namespace: Option<String>,
    /// User id that may observe: the broker's own. Root may too.
    pub observer_uid: u32,
}

/// What a peer may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A process of the instance: leases and reads.
    Tenant,
    /// A process of the host: reads the pages.
    Observer,
    Stranger,
}

/// What `/proc` says of a process.
pub trait Processes {
    fn cgroups(&self, pid: i32) -> Option<String>;
    fn pid_namespace(&self, pid: i32) -> Option<String>;
}

/// The real `/proc`.
#[derive(Debug, Clone, Copy)]
pub struct Proc;

impl Processes for Proc {
    fn cgroups(&self, pid: i32) -> Option<String> {
        std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()
    }

    fn pid_namespace(&self, pid: i32) -> Option<String> {
        let link = std::fs::read_link(format!("/proc/{pid}/ns/pid")).ok()?;
        Some(link.to_str()?.to_owned())
    }
}

/// A process by both its numbers: the host's, and the one it has inside its instance's pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Numbered {
    pub outside: u32,
    /// 0 when `/proc` does not tell.
    pub inside: u32,
}

impl Numbered {
    pub fn of(pid: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        Self { outside: pid, inside: innermost_pid(&status).unwrap_or(0) }
    }
}

/// The last number of the `NSpid` line: a process's pid in the innermost namespace it is in.
fn innermost_pid(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    line.split_whitespace().next_back()?.parse().ok()
}

impl Admission {
    pub fn judge(&self, peer: &UCred, processes: &impl Processes) -> Standing {
        let (uid, pid) = (peer.uid.as_raw(), peer.pid.as_raw_nonzero().get());
        if self.tenant_uids.contains(&uid) && self.within(pid, processes) {
            Standing::Tenant
        } else if uid == self.observer_uid || uid == 0 {
            Standing::Observer
        } else {
            Standing::Stranger
        }
    }

    fn within(&self, pid: i32, processes: &impl Processes) -> bool {
        let in_cgroup = self.tenant_cgroup.as_ref().is_none_or(|wanted| {
            processes.cgroups(pid).is_some_and(|text| text.lines().any(|line| below(line, wanted)))
        });
        let in_namespace = self
            .tenant_pid_namespace
            .as_ref()
            .is_none_or(|wanted| processes.pid_namespace(pid).as_ref() == Some(wanted));
        in_cgroup && in_namespace
    }
}

/// Whether a line `hierarchy:controllers:path` names `wanted` or a cgroup below it.
fn below(line: &str, wanted: &Path) -> bool {
    line.splitn(3, ':').nth(2).is_some_and(|path| Path::new(path).starts_with(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Gid, Pid, Uid};

    struct Table;

    impl Processes for Table {
        fn cgroups(&self, pid: i32) -> Option<String> {
            (pid == 10).then(|| "0::/tarn.slice/ins_1/user.slice\n".to_owned())
        }

        fn pid_namespace(&self, pid: i32) -> Option<String> {
            Some(if pid == 10 { "pid:[2]" } else { "pid:[1]" }.to_owned())
        }
    }

    #[test]
    fn the_innermost_pid_is_the_last() {
        assert_eq!(innermost_pid("Name:\tx\nNSpid:\t4711\t2\nVmPeak: 1\n"), Some(2));
        assert_eq!(innermost_pid("NSpid:\t4711\n"), Some(4711));
        assert_eq!(innermost_pid("Name:\tx\n"), None);
        assert_eq!(Numbered::of(std::process::id()).outside, std::process::id());
    }

    fn check(uid: u32, pid: i32, cgroup: Option<&str>, namespace: Option<&str>, expected: Standing) {
        let admission = Admission {
            tenant_uids: vec![1000],
            tenant_cgroup: cgroup.map(PathBuf::from),
            tenant_pid_namespace: namespace.map(str::to_owned),
            observer_uid: 500,
        };
        let pid = Pid::from_raw(pid).unwrap();
        let peer = UCred { pid, uid: Uid::from_raw(uid), gid: Gid::from_raw(0) };
        assert_eq!(admission.judge(&peer, &Table), expected, "uid {uid} {pid:?} {cgroup:?} {namespace:?}");
    }

    #[test]
    fn every_given_rule_must_hold() {
        check(1000, 10, None, None, Standing::Tenant);
        check(1000, 10, Some("/tarn.slice/ins_1"), Some("pid:[2]"), Standing::Tenant);
        check(1000, 10, Some("/tarn.slice/ins_11"), None, Standing::Stranger);
        check(1000, 10, Some("/tarn.slice/ins"), None, Standing::Stranger);
        check(1000, 11, Some("/tarn.slice/ins_1"), None, Standing::Stranger);
        check(1000, 11, None, Some("pid:[2]"), Standing::Stranger);
        check(1001, 10, None, None, Standing::Stranger);
        check(500, 11, Some("/tarn.slice/ins_1"), None, Standing::Observer);
        check(0, 11, Some("/tarn.slice/ins_1"), None, Standing::Observer);
    }
}
