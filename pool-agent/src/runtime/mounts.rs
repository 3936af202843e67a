//! What an instance sees of the host's files: other tenants hidden, foreign cards closed, our libraries in every loader's way.

use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind, mount_change, mount_remount, unmount,
};

use super::LaunchPlan;

#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}")]
pub struct MountError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

fn at<E: Into<std::io::Error>>(action: &'static str, path: &Path) -> impl FnOnce(E) -> MountError {
    let path = path.to_owned();
    move |error| MountError { action, path, source: error.into() }
}

/// Arranges the mount namespace that the calling process just got for itself.
pub fn arrange(plan: &LaunchPlan, own_pid_namespace: bool) -> Result<(), MountError> {
    let root = Path::new("/");
    mount_change(root, MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(at("keep private", root))?;
    for node in &plan.masked {
        close_node(node)?;
    }
    for (source, target) in &plan.overlays {
        mount_bind(source, target).map_err(at("replace", target))?;
    }
    hide(&plan.hidden, &plan.directory)?;
    if own_pid_namespace {
        let proc = Path::new("/proc");
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("proc", proc, "proc", flags, None).map_err(at("mount", proc))?;
    }
    Ok(())
}

/// A node that nobody opens, root included: a device on a mount without devices.
fn close_node(node: &Path) -> Result<(), MountError> {
    mount_bind("/dev/null", node).map_err(at("cover", node))?;
    let flags = MountFlags::BIND | MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOEXEC;
    mount_remount(node, flags, "").map_err(at("close", node))
}

/// Covers `hidden` with an empty directory in which only `kept`, a path below it, is there.
fn hide(hidden: &Path, kept: &Path) -> Result<(), MountError> {
    let open =
        rustix::fs::openat(CWD, kept, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
            .map_err(at("open", kept))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", hidden, "tmpfs", flags, Some(c"mode=0755,size=64k")).map_err(at("hide", hidden))?;
    std::fs::create_dir_all(kept).map_err(at("make", kept))?;
    let source = format!("/proc/self/fd/{}", open.as_raw_fd());
    if let Err(error) = mount_bind(source.as_str(), kept) {
        // Half hidden is worse than not at all: the caller degrades knowingly.
        let _still_covered = unmount(hidden, UnmountFlags::DETACH);
        return Err(at("show", kept)(error));
    }
    Ok(())
}
