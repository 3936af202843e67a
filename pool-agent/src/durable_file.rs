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
    #[error("{path} and its copy are damaged; {remedy}")]
    Damaged { path: PathBuf, remedy: &'static str },
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

/// Where the second text of a file lies that must not be lost.
pub fn copy_of(path: &Path) -> PathBuf {
    path.with_extension("copy")
}

/// Writes the copy first, so that it is never older than the file.
pub fn replace_json_twice<T: Serialize>(path: &Path, value: &T) -> Result<(), DurableError> {
    replace_json(&copy_of(path), value)?;
    replace_json(path, value)
}

/// The file, or its copy when the file is damaged or lost. `remedy` says what a person does when both are.
pub fn read_json_twice<T: DeserializeOwned>(
    path: &Path,
    remedy: &'static str,
) -> Result<Option<T>, DurableError> {
    let found = match read_json(path) {
        Ok(Some(value)) => return Ok(Some(value)),
        Err(DurableError::Parse { .. }) => None,
        Ok(None) => Some(()),
        Err(error) => return Err(error),
    };
    match (read_json(&copy_of(path)), found) {
        (Ok(Some(value)), _) => {
            tracing::warn!(path = %path.display(), "lost or damaged; its copy is used");
            Ok(Some(value))
        }
        (Ok(None), Some(())) => Ok(None),
        (Ok(None) | Err(DurableError::Parse { .. }), _) => {
            Err(DurableError::Damaged { path: path.to_owned(), remedy })
        }
        (Err(error), _) => Err(error),
    }
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
    fn a_file_kept_twice_survives_the_loss_of_either_text_and_says_when_both_are_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        let read = || read_json_twice::<u32>(&path, "do this");
        assert!(read().unwrap().is_none());
        replace_json_twice(&path, &7).unwrap();
        for damage in ["", "{ torn"] {
            std::fs::write(&path, damage).unwrap();
            assert_eq!(read().unwrap(), Some(7), "{damage:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read().unwrap(), Some(7));
        std::fs::write(copy_of(&path), "").unwrap();
        let error = read().unwrap_err().to_string();
        assert!(error.contains("state.json") && error.ends_with("do this"), "{error}");
        replace_json(&path, &8).unwrap();
        assert_eq!(read().unwrap(), Some(8));
    }

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
