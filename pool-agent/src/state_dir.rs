//! Where the agent keeps what it must not forget. One directory, one agent: a lock keeps a second one out.

use std::fs::File;
use std::path::{Path, PathBuf};

use tarn_protocol::ids::InstanceId;

#[derive(Debug, Clone)]
pub struct StateDir {
    root: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    #[error("cannot make state directory {path}")]
    Create { path: PathBuf, source: std::io::Error },
    #[error("another agent holds state directory {path}")]
    Held { path: PathBuf },
}

impl StateDir {
    pub fn open(root: &Path) -> Result<Self, StateDirError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| StateDirError::Create { path, source }
        };
        for part in ["", "instances", "journal", "wanted", "run", "broker-logs"] {
            let path = root.join(part);
            std::fs::create_dir_all(&path).map_err(failed(&path))?;
        }
        Ok(Self { root: root.canonicalize().map_err(failed(root))? })
    }

    /// Held until the returned file is closed, by whatever end of the process.
    pub fn lock(&self) -> Result<File, StateDirError> {
        let path = self.root.join("lock");
        let file =
            File::create(&path).map_err(|source| StateDirError::Create { path: path.clone(), source })?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| StateDirError::Held { path: self.root.clone() })?;
        Ok(file)
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub fn instances(&self) -> PathBuf {
        self.root.join("instances")
    }

    /// What the instance itself sees of this host's state.
    pub fn instance(&self, id: &InstanceId) -> PathBuf {
        self.instances().join(id.as_str())
    }

    pub fn journal(&self, id: &InstanceId) -> PathBuf {
        self.root.join("journal").join(format!("{id}.json"))
    }

    pub fn wanted(&self, id: &InstanceId) -> PathBuf {
        self.root.join("wanted").join(format!("{id}.json"))
    }

    pub fn knows(&self, id: &InstanceId) -> bool {
        [self.instance(id), self.journal(id), self.wanted(id)].iter().any(|path| path.exists())
    }

    /// Every instance that left something here, whatever it is.
    pub fn known_instances(&self) -> Vec<InstanceId> {
        let mut found: Vec<InstanceId> = ["instances", "journal", "wanted"]
            .iter()
            .filter_map(|part| std::fs::read_dir(self.root.join(part)).ok())
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.trim_end_matches(".json").parse().ok())
            .collect();
        found.sort();
        found.dedup();
        found
    }
}
