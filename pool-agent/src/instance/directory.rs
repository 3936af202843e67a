//! The instance's directory: its libraries in place of the driver's, its home, its log.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tarn_protocol::pool_config::{self, PoolConfig};

use crate::durable_file::{self, DurableError};
use crate::runtime::loader_cache::{self, CacheError};

#[derive(Debug, Clone)]
pub struct InstanceDirectory {
    root: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    #[error("cannot make {path}")]
    Make { path: PathBuf, source: std::io::Error },
    #[error("{0} is missing: run `make build` first")]
    Artefact(PathBuf),
    #[error("the driver's {0} was not found")]
    Driver(&'static str),
    #[error(transparent)]
    Durable(#[from] DurableError),
}

/// Our library, the driver's it stands before, and the name under which that one is kept.
const LIBRARIES: [(&str, &str, &str); 2] = [
    ("libtarn_standin_cuda.so", "libcuda.so.1", "libcuda-real.so.1"),
    ("libtarn_standin_nvml.so", "libnvidia-ml.so.1", "libnvidia-ml-real.so.1"),
];
/// What a program that wants to say more of its memory finds beside the libraries.
const COMPANIONS: [(&str, &str); 2] = [
    ("tarn.h", include_str!("../../cuda/include/tarn.h")),
    ("tarn_pool.py", include_str!("../../cuda/python/tarn_pool.py")),
];
/// Where systems keep the driver.
const SYSTEM_LIBRARY_DIRS: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/aarch64-linux-gnu"];

impl InstanceDirectory {
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn lib(&self) -> PathBuf {
        self.root.join("lib")
    }

    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    pub fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    pub fn broker_socket(&self) -> PathBuf {
        self.root.join("broker.sock")
    }

    pub fn ledger(&self) -> PathBuf {
        self.root.join("ledger.json")
    }

    pub fn standin_log(&self) -> PathBuf {
        self.root.join("standin.log")
    }

    pub fn pool_config(&self) -> PathBuf {
        self.lib().join(pool_config::FILE_NAME)
    }

    pub fn loader_cache(&self) -> PathBuf {
        self.root.join("ld.so.cache")
    }

    /// Writes everything that a start needs; what an earlier generation left of its pool goes first.
    pub fn prepare(
        &self,
        config: &PoolConfig,
        artefacts: &Path,
        driver_dir: Option<&Path>,
    ) -> Result<(), DirectoryError> {
        for path in [self.root.clone(), self.lib(), self.home()] {
            std::fs::create_dir_all(&path).map_err(|source| DirectoryError::Make { path, source })?;
        }
        for path in [self.ledger(), self.broker_socket(), self.standin_log()] {
            durable_file::remove(&path)?;
        }
        for (ours, name, real_name) in LIBRARIES {
            let artefact = artefacts.join(ours);
            if !artefact.exists() {
                return Err(DirectoryError::Artefact(artefact));
            }
            place_copy(&artefact, &self.lib().join(name))?;
            // Numba, among others, opens the driver by this name before any other.
            place_link(Path::new(name), &self.lib().join(name.trim_end_matches(".1")))?;
            let real = driver_library(driver_dir, name).ok_or(DirectoryError::Driver(name))?;
            place_link(&self.beyond_cover(real, name)?, &self.lib().join(real_name))?;
        }
        for (name, text) in COMPANIONS {
            let path = self.lib().join(name);
            std::fs::write(&path, text).map_err(|source| DirectoryError::Make { path, source })?;
        }
        durable_file::replace_json(&self.pool_config(), config)?;
        let path = self.pool_config();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644))
            .map_err(|source| DirectoryError::Make { path, source })
    }

    /// Where the driver's library can still be reached once ours covers the system's name for it: a link of its own to the
    /// same file, else a copy.
    fn beyond_cover(&self, real: PathBuf, name: &str) -> Result<PathBuf, DirectoryError> {
        if system_library(name).as_ref() != Some(&real) {
            return Ok(real);
        }
        let kept = self.root.join("driver");
        std::fs::create_dir_all(&kept)
            .map_err(|source| DirectoryError::Make { path: kept.clone(), source })?;
        let target = kept.join(name);
        durable_file::remove(&target)?;
        std::fs::hard_link(&real, &target)
            .or_else(|_| std::fs::copy(&real, &target).map(|_| ()))
            .map_err(|source| DirectoryError::Make { path: target.clone(), source })?;
        Ok(target)
    }

    /// The loader's cache with our libraries first; an instance without one relies on its environment, which is said.
    pub fn write_loader_cache(&self) -> Result<(), CacheError> {
        loader_cache::write(&self.lib(), &self.loader_cache())
    }

    pub fn remove(&self) -> std::io::Result<()> {
        match std::fs::remove_dir_all(&self.root) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The driver's own library, by its final name.
pub fn driver_library(driver_dir: Option<&Path>, name: &str) -> Option<PathBuf> {
    match driver_dir {
        Some(directory) => directory.join(name).canonicalize().ok(),
        None => system_library(name),
    }
}

/// The file behind a system-wide library of this name.
pub fn system_library(name: &str) -> Option<PathBuf> {
    SYSTEM_LIBRARY_DIRS.iter().find_map(|directory| Path::new(directory).join(name).canonicalize().ok())
}

/// A regular file, not a link: the loader's cache prefers files, and the driver's own library has the same SONAME.
fn place_copy(source: &Path, target: &Path) -> Result<(), DirectoryError> {
    let fresh = target.with_extension("new");
    std::fs::copy(source, &fresh)
        .and_then(|_| std::fs::rename(&fresh, target))
        .map_err(|source| DirectoryError::Make { path: target.to_owned(), source })
}

fn place_link(source: &Path, target: &Path) -> Result<(), DirectoryError> {
    let made = std::fs::remove_file(target)
        .or_else(|error| if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
        .and_then(|()| symlink(source, target));
    made.map_err(|source| DirectoryError::Make { path: target.to_owned(), source })
}
