//! `tarn-agent rejoin`: the way on when what the agent must not forget is damaged beyond its copy.
//!
//! Everything that binds the host to the control plane is set aside, nothing is deleted, and what runs is left running: the next `run` with a
//! join token makes this a new host, to which the instances of the old one are strangers that an operator decides about.

use std::path::PathBuf;

use tarn_protocol::ids::InstanceId;
use tarn_protocol::units::MonoMillis;

use crate::durable_file;
use crate::state_dir::{StateDir, StateDirError};

/// Said with every file that only this mends.
pub const REMEDY: &str = "run `tarn-agent rejoin --state-dir …`, then `tarn-agent run` with a new join token";

const FILES: [&str; 4] = ["identity.json", "join_nonce.json", "fence.json", "report_seq.json"];

#[derive(Debug, thiserror::Error)]
pub enum RejoinError {
    #[error(transparent)]
    StateDir(#[from] StateDirError),
    #[error("cannot set {path} aside")]
    Aside { path: PathBuf, source: std::io::Error },
}

/// What was set aside, and what is still here.
#[derive(Debug)]
pub struct Rejoined {
    pub aside: PathBuf,
    pub files: Vec<String>,
    pub instances: Vec<InstanceId>,
}

/// Refused while an agent runs on this directory.
pub fn set_aside(state: &StateDir, now: MonoMillis) -> Result<Rejoined, RejoinError> {
    let _held = state.lock()?;
    let aside = state.file(&format!("set-aside-{now}"));
    let failed = |path: &PathBuf| {
        let path = path.clone();
        move |source| RejoinError::Aside { path, source }
    };
    std::fs::create_dir_all(&aside).map_err(failed(&aside))?;
    let mut files = Vec::new();
    for path in
        FILES.map(|name| state.file(name)).iter().flat_map(|path| [path.clone(), durable_file::copy_of(path)])
    {
        let Some(name) = path.file_name().filter(|_| path.exists()) else { continue };
        std::fs::rename(&path, aside.join(name)).map_err(failed(&path))?;
        files.push(name.to_string_lossy().into_owned());
    }
    durable_file::sync_parent(&state.file("lock")).map_err(failed(&aside))?;
    Ok(Rejoined { aside, files, instances: state.known_instances() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_binds_the_host_is_set_aside_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDir::open(directory.path()).unwrap();
        for name in ["identity.json", "identity.copy", "fence.json", "usage.jsonl", "health.json"] {
            std::fs::write(state.file(name), name).unwrap();
        }
        let held = state.lock().unwrap();
        assert!(set_aside(&state, MonoMillis::new(5)).is_err(), "not while an agent runs");
        drop(held);
        let done = set_aside(&state, MonoMillis::new(5)).unwrap();
        assert_eq!(done.files, ["identity.json", "identity.copy", "fence.json"]);
        assert_eq!(std::fs::read_to_string(done.aside.join("fence.json")).unwrap(), "fence.json");
        assert!(state.file("usage.jsonl").exists() && state.file("health.json").exists());
        assert!(!state.file("identity.json").exists());
    }
}
