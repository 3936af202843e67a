//! Files that are either the old text or the new one, whatever dies when: written beside, synced, renamed, directory synced.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

#[derive(Debug, thiserror::Error)]
pub enum DurableError {
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: std::io::Error },
    #[error("cannot read {path}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{path} does not hold what it should")]
    Parse { path: PathBuf, source: serde_json::Error },
}

impl DurableError {
    pub(crate) fn write(path: &Path, source: std::io::Error) -> Self {
        Self::Write { path: path.to_owned(), source }
    }

    pub(crate) fn read(path: &Path, source: std::io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }
}

/// Private to root: what the agent keeps is nobody else's business.
const MODE: u32 = 0o600;

pub fn replace(path: &Path, bytes: &[u8]) -> Result<(), DurableError> {
    write_and_rename(path, bytes).map_err(|source| DurableError::write(path, source))
}

fn write_and_rename(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(MODE).open(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)?;
    sync_parent(path)
}

/// Makes the name itself durable.
pub fn sync_parent(path: &Path) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), |parent| File::open(parent)?.sync_all())
}

pub fn replace_json<T: Serialize>(path: &Path, value: &T) -> Result<(), DurableError> {
    let bytes = serde_json::to_vec_pretty(value)
        .map_err(|source| DurableError::Parse { path: path.to_owned(), source })?;
    replace(path, &bytes)
}

/// `None` when the file does not exist.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, DurableError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(DurableError::read(path, source)),
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|source| DurableError::Parse { path: path.to_owned(), source })
}

/// Removes a file durably; an absent one is fine.
pub fn remove(path: &Path) -> Result<(), DurableError> {
    match std::fs::remove_file(path) {
        Ok(()) => sync_parent(path).map_err(|source| DurableError::write(path, source)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(DurableError::write(path, source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_file_is_whole_and_private() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        assert!(read_json::<Vec<u32>>(&path).unwrap().is_none());
        replace_json(&path, &vec![1, 2]).unwrap();
        replace_json(&path, &vec![3]).unwrap();
        assert_eq!(read_json::<Vec<u32>>(&path).unwrap(), Some(vec![3]));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        remove(&path).unwrap();
        remove(&path).unwrap();
        std::fs::write(&path, "{").unwrap();
        assert!(matches!(read_json::<u32>(&path), Err(DurableError::Parse { .. })));
    }
}
