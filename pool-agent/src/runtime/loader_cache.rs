//! The dynamic loader's cache as an instance sees it: our libraries first, whatever environment a process starts with.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub const SYSTEM_CACHE: &str = "/etc/ld.so.cache";

#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error("cannot write {path}")]
    Write { path: PathBuf, source: std::io::Error },
    #[error("cannot run ldconfig")]
    Run(#[source] std::io::Error),
    #[error("ldconfig failed: {detail}")]
    Failed { detail: String },
}

/// Writes a cache to `target` that lists `first` before the system's own directories. Links are left alone (`-X`): the driver's
/// real library carries the same SONAME as ours, and only the order and the file kinds tell them apart.
pub fn write(first: &Path, target: &Path) -> Result<(), CacheError> {
    let config = target.with_extension("conf");
    let text = format!("{}\ninclude /etc/ld.so.conf\n", first.display());
    std::fs::write(&config, text).map_err(|source| CacheError::Write { path: config.clone(), source })?;
    let program = ["/sbin/ldconfig", "/usr/sbin/ldconfig"].iter().find(|path| Path::new(path).exists());
    let output = Command::new(program.unwrap_or(&"ldconfig"))
        .args(["-X", "-f"])
        .arg(&config)
        .arg("-C")
        .arg(target)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(CacheError::Run)?;
    if output.status.success() {
        Ok(())
    } else {
        Err(CacheError::Failed { detail: String::from_utf8_lossy(&output.stderr).trim().to_owned() })
    }
}
