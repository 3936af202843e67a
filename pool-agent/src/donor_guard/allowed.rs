//! Processes of the agent itself that compute on cards: the two of a certificate, a scrubber.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::process_mark::ProcessMark;

/// Old ones are forgotten: a pid and start time are never used again, and accounting remembers fewer.
const KEPT_MAX: usize = 4096;

#[derive(Debug, Default)]
pub struct Allowed {
    marks: Mutex<VecDeque<ProcessMark>>,
}

impl Allowed {
    /// To be called before the process may touch a card.
    pub fn admit(&self, pid: u32) {
        let Some(mark) = ProcessMark::of(pid) else { return };
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        marks.push_back(mark);
        let excess = marks.len().saturating_sub(KEPT_MAX);
        marks.drain(..excess);
    }

    pub fn has(&self, mark: &ProcessMark) -> bool {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).contains(mark)
    }

    /// Whether any process of ours had this pid: all that is known of a process that is gone.
    pub fn had(&self, pid: u32) -> bool {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|mark| mark.pid == pid)
    }
}
