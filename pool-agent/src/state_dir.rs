//! Where the agent keeps what it must not forget. One directory, one agent: a lock keeps a second one out.

use std::fs::File;
use std::path::{Path, PathBuf};

use tarn_protocol::ids::InstanceId;

/// Space kept for the agent's own small files, should a tenant fill the disk that both are on.
const RESERVE_BYTES: u64 = 4 << 20;

#[derive(Debug, Clone)]
pub struct StateDir {
    root: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    #[error("cannot make state directory {path}")]
    Create { path: PathBuf, source: std::io::Error },
    #[error("there is no state directory {path}")]
    Absent { path: PathBuf },
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

    /// The directory of an agent that has run already; nothing is made.
    pub fn existing(root: &Path) -> Result<Self, StateDirError> {
        match root.canonicalize() {
            Ok(found) if found.join("instances").is_dir() => Ok(Self { root: found }),
            _ => Err(StateDirError::Absent { path: root.to_owned() }),
        }
    }

    /// Takes the reserve, as far as the disk gives it.
    pub fn keep_reserve(&self) {
        let path = self.root.join("reserve");
        let kept = File::options().write(true).create(true).truncate(false).open(&path).and_then(|file| {
            let flags = rustix::fs::FallocateFlags::empty();
            rustix::fs::fallocate(&file, flags, 0, RESERVE_BYTES).map_err(std::io::Error::from)
        });
        if let Err(error) = kept {
            tracing::warn!(%error, "no space is kept for the agent's own files");
        }
    }

    /// Gives the reserve up, so that what has to be written down can be.
    pub fn release_reserve(&self) {
        let _absent_is_fine = std::fs::remove_file(self.root.join("reserve"));
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
