//! An instance's output: a file that never grows beyond a bound, with one predecessor.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const FILE_MAX: u64 = 4 << 20;

#[derive(Debug)]
pub struct OutputFile {
    path: PathBuf,
    file: File,
    written: u64,
}

impl OutputFile {
    pub fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        let written = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, written })
    }

    /// Copies everything that comes until the last writer closes. What cannot be written is dropped: a full disk must not
    /// block the tenant.
    pub fn copy_from(mut self, mut source: impl Read) {
        let mut chunk = [0; 16 * 1024];
        loop {
            match source.read(&mut chunk) {
                Ok(0) => return,
                Ok(count) => {
                    let _dropped = self.put(&chunk[..count]);
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }

    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if self.written + bytes.len() as u64 > FILE_MAX {
            std::fs::rename(&self.path, self.path.with_extension("1"))?;
            *self = Self::open(&self.path)?;
        }
        self.file.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_stays_within_its_bound() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let line = vec![b'x'; 1 << 20];
        OutputFile::open(&path).unwrap().copy_from(line.repeat(9).as_slice());
        assert!(std::fs::metadata(&path).unwrap().len() <= FILE_MAX);
        assert!(std::fs::metadata(path.with_extension("1")).unwrap().len() <= FILE_MAX);
    }
}
