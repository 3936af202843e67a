//! Whose process is it? Told by the kernel, never by the process.

use std::path::Path;

use tarn_protocol::control::IdentifiedBy;
use tarn_protocol::ids::InstanceId;

use crate::process_mark::ProcessMark;
use crate::runtime::cgroup;

/// One process, as the kernel knows it at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub mark: ProcessMark,
    pub instance: Option<InstanceId>,
    pub by: IdentifiedBy,
    /// The line of `/proc/<pid>/cgroup` that told, or the first one.
    pub cgroup: Option<String>,
}

/// `None` for a process that is gone. `member_of` answers for machines without cgroups.
pub fn identify(pid: u32, member_of: impl FnOnce(u32) -> Option<InstanceId>) -> Option<Identity> {
    let mark = ProcessMark::of(pid)?;
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    if let Some((instance, line)) = by_cgroup(&text) {
        return Some(Identity {
            mark,
            instance: Some(instance),
            by: IdentifiedBy::Cgroup,
            cgroup: Some(line),
        });
    }
    let instance = member_of(pid);
    let by = if instance.is_some() { IdentifiedBy::PidNamespace } else { IdentifiedBy::Nothing };
    let first = text.lines().next().map(|line| path_of(line).to_owned());
    Some(Identity { mark, instance, by, cgroup: first })
}

/// `id:controllers:path`; the path may hold colons.
fn path_of(line: &str) -> &str {
    line.splitn(3, ':').nth(2).unwrap_or("")
}

/// The outermost group that the agent made: whatever a tenant makes below it changes nothing.
fn by_cgroup(text: &str) -> Option<(InstanceId, String)> {
    text.lines().map(path_of).find_map(|path| {
        let mut parts = Path::new(path).components().map(|part| part.as_os_str().to_str());
        parts.find(|part| *part == Some(cgroup::GROUP))?;
        let instance = parts.next()??.parse().ok()?;
        Some((instance, path.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_protocol::units::Timestamp;

    fn check(text: &str, expected: Option<u128>) {
        let id = |entropy| InstanceId::new(Timestamp::from_micros(1), entropy);
        assert_eq!(by_cgroup(text).map(|(found, _)| found), expected.map(id), "{text}");
    }

    #[test]
    fn b10_the_outermost_group_of_ours_tells_the_instance() {
        let [first, second] = [1, 2].map(|entropy| InstanceId::new(Timestamp::from_micros(1), entropy));
        check(&format!("0::/tarn/{first}\n"), Some(1));
        check(&format!("9:memory:/tarn/{first}\n5:pids:/tarn/{first}\n"), Some(1));
        check(&format!("0::/docker/abc/tarn/{first}/own"), Some(1));
        // A tenant's own sub-groups, whatever they are called.
        check(&format!("0::/tarn/{first}/tarn/{second}"), Some(1));
        check(&format!("0::/other/{first}\n1:name=systemd:/user.slice"), None);
        check("0::/tarn/not-an-id", None);
        check("", None);
    }

    #[test]
    fn a_process_of_nobody_is_still_named() {
        let own = identify(std::process::id(), |_| None).unwrap();
        assert_eq!((own.instance, own.by), (None, IdentifiedBy::Nothing));
        let asked = InstanceId::new(Timestamp::from_micros(1), 9);
        let found = identify(std::process::id(), |_| Some(asked.clone())).unwrap();
        assert_eq!((found.instance, found.by), (Some(asked), IdentifiedBy::PidNamespace));
        assert!(identify(u32::MAX, |_| None).is_none());
    }
}
