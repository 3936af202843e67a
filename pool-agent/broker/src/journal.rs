//! The ledger on disk: what a successor must know when this broker dies.
//!
//! A file of JSON lines: the first is a snapshot, each later one a lease given or ended. One `write` per change, before the client
//! hears of it; a torn last line is a change nobody heard of. No fsync: chunks do not outlive the machine either. When the lines
//! pile up, a new snapshot replaces the file by rename.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tarn_protocol::ids::GpuUuid;

use crate::ledger::{Chunk, Donor, LeaseId, Ledger, Nonce};

/// Changes after which a snapshot is due, beyond twice what is live.
const LINES_MAX: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("cannot {what} the ledger file {path}")]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("the ledger file {path} does not start with a snapshot")]
    Snapshot { path: PathBuf },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct ChunkLine {
    lease: u64,
    nonce: u64,
    donor: usize,
    bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Snapshot { donors: Vec<DonorLine>, next_lease: u64, chunks: Vec<ChunkLine> },
    Leased(ChunkLine),
    Ended { lease: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DonorLine {
    pub uuid: GpuUuid,
    /// `used` of the card before the pool took anything.
    pub baseline_bytes: u64,
}

/// What a predecessor left.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Past {
    pub donors: Vec<DonorLine>,
    pub next_lease: u64,
    pub chunks: BTreeMap<LeaseId, Chunk>,
}

#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    donors: Vec<DonorLine>,
    lines: usize,
}

fn line_of(lease: LeaseId, chunk: Chunk) -> ChunkLine {
    ChunkLine { lease: lease.0, nonce: chunk.nonce.0, donor: chunk.donor.0, bytes: chunk.bytes }
}

fn chunk_of(line: ChunkLine) -> (LeaseId, Chunk) {
    let chunk = Chunk { nonce: Nonce(line.nonce), donor: Donor(line.donor), bytes: line.bytes };
    (LeaseId(line.lease), chunk)
}

impl Past {
    /// Reads the file at `path`; `None` when there is none.
    pub fn read(path: &Path) -> Result<Option<Self>, JournalError> {
        let file = match File::open(path) {
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(JournalError::File { what: "open", path: path.to_owned(), source }),
            Ok(file) => file,
        };
        let mut past = Self::default();
        let mut started = false;
        for text in BufReader::new(file).lines() {
            let text =
                text.map_err(|source| JournalError::File { what: "read", path: path.to_owned(), source })?;
            // A torn line is the last one: its change was never answered.
            let Ok(line) = serde_json::from_str::<Line>(&text) else { break };
            started |= past.add(line);
        }
        if started { Ok(Some(past)) } else { Err(JournalError::Snapshot { path: path.to_owned() }) }
    }

    fn add(&mut self, line: Line) -> bool {
        match line {
            Line::Snapshot { donors, next_lease, chunks } => {
                *self = Self { donors, next_lease, chunks: chunks.into_iter().map(chunk_of).collect() };
                return true;
            }
            Line::Leased(line) => {
                self.next_lease = self.next_lease.max(line.lease + 1);
                let (lease, chunk) = chunk_of(line);
                self.chunks.insert(lease, chunk);
            }
            Line::Ended { lease } => drop(self.chunks.remove(&LeaseId(lease))),
        }
        false
    }
}

impl Journal {
    /// Starts a file at `path` with the ledger as it is.
    pub fn create(path: &Path, donors: Vec<DonorLine>, ledger: &Ledger) -> Result<Self, JournalError> {
        let file = snapshot(path, &donors, ledger)?;
        Ok(Self { path: path.to_owned(), file, donors, lines: 0 })
    }

    pub fn leased(&mut self, lease: LeaseId, chunk: Chunk) -> Result<(), JournalError> {
        self.append(&Line::Leased(line_of(lease, chunk)))
    }

    pub fn ended(&mut self, lease: LeaseId) -> Result<(), JournalError> {
        self.append(&Line::Ended { lease: lease.0 })
    }

    /// Replaces the file by a snapshot when it has grown far beyond what is live.
    pub fn compact(&mut self, ledger: &Ledger) -> Result<(), JournalError> {
        if self.lines > LINES_MAX + 2 * ledger.chunks().count() {
            self.file = snapshot(&self.path, &self.donors, ledger)?;
            self.lines = 0;
        }
        Ok(())
    }

    fn append(&mut self, line: &Line) -> Result<(), JournalError> {
        let mut text = serde_json::to_vec(line).map_err(|source| self.failed("write", source.into()))?;
        text.push(b'\n');
        self.file.write_all(&text).map_err(|source| self.failed("write", source))?;
        self.lines += 1;
        Ok(())
    }

    fn failed(&self, what: &'static str, source: std::io::Error) -> JournalError {
        JournalError::File { what, path: self.path.clone(), source }
    }
}

fn snapshot(path: &Path, donors: &[DonorLine], ledger: &Ledger) -> Result<File, JournalError> {
    let chunks = ledger.chunks().map(|(id, chunk)| line_of(id, chunk)).collect();
    let line = Line::Snapshot { donors: donors.to_vec(), next_lease: ledger.next_lease(), chunks };
    let next = path.with_extension("next");
    let write = || -> std::io::Result<File> {
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        std::fs::write(&next, text)?;
        std::fs::rename(&next, path)?;
        OpenOptions::new().append(true).open(path)
    };
    write().map_err(|source| JournalError::File { what: "write", path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{CHUNK_UNIT, Client, Want};

    #[test]
    fn a_successor_reads_what_was_leased_and_not_ended_even_after_a_torn_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger.json");
        assert_eq!(Past::read(&path).unwrap(), None);

        let uuid: GpuUuid = "GPU-00000000-0000-0000-0000-000000000001".parse().unwrap();
        let donors = vec![DonorLine { uuid, baseline_bytes: 7 }];
        let mut ledger = Ledger::new(&[8 * CHUNK_UNIT], 10);
        let want = Want { bytes: CHUNK_UNIT, donor: None, exact: true };
        let (first, chunk) = ledger.lease(Client(1), Nonce(1), want).unwrap();
        let mut journal = Journal::create(&path, donors.clone(), &ledger).unwrap();
        let (second, _) = ledger.lease(Client(1), Nonce(1), want).unwrap();
        journal.leased(second, chunk).unwrap();
        journal.ended(first).unwrap();
        journal.file.write_all(b"{\"leased\":{\"lea").unwrap();

        let past = Past::read(&path).unwrap().unwrap();
        assert_eq!(past, Past { donors, next_lease: 3, chunks: BTreeMap::from([(second, chunk)]) });
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger.json");
        std::fs::write(&path, "{}\n").unwrap();
        assert!(matches!(Past::read(&path), Err(JournalError::Snapshot { .. })));
    }
}
