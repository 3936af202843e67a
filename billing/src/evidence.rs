//! Evidence: how a host's proof of running enters a segment.
//!
//! Evidence names an instance, a generation, a boot and a card, and an interval of that boot's clock. It is offered to every segment
//! it [`names`]: after a price change those are two, and each counts only its own window. The milliseconds that the host excuses
//! (suspended, donor lost) are taken off the end of the interval, so that every proof is a plain interval and a union stays a union.

use tarn_protocol::control::UsageEvidence;
use tarn_protocol::ids::SegmentId;
use tarn_protocol::units::Timestamp;

use crate::coverage::InvalidCoverage;
use crate::segment::{Segment, SegmentState};

/// How long after the end of its segment evidence still counts: 35 days.
pub const LATE_MAX_MICROS: i64 = 35 * 24 * 3600 * 1_000_000;

/// What a piece of evidence changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Applied {
    /// Milliseconds of the segment that were not proven before.
    pub added_ms: u64,
    /// Milliseconds that were: all of them for a repeat. Between 0 and all means an agent that overlaps its own intervals.
    pub known_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefusedEvidence {
    #[error("evidence of another run than segment {0}")]
    OtherRun(SegmentId),
    #[error("evidence excuses more than its interval, or runs backwards")]
    Malformed,
    #[error("evidence more than 35 days after the end of segment {0}")]
    TooLate(SegmentId),
    #[error(transparent)]
    Coverage(#[from] InvalidCoverage),
}

/// Whether `evidence` is about the run that `segment` bills.
pub fn names(evidence: &UsageEvidence, segment: &Segment) -> bool {
    let terms = segment.terms();
    evidence.instance_id == terms.instance_id
        && evidence.generation == terms.generation
        && evidence.boot_id == terms.anchor.boot_id
        && terms.meter.card() == Some(&evidence.primary)
}

impl Segment {
    /// Adds what `evidence` proves to this segment. Repeats, late and reordered evidence are safe; so is evidence ahead of the
    /// control plane's clock, which counts once that clock has come so far.
    pub fn apply(
        &mut self,
        evidence: &UsageEvidence,
        received_at: Timestamp,
    ) -> Result<Applied, RefusedEvidence> {
        if !names(evidence, self) {
            return Err(RefusedEvidence::OtherRun(self.id().clone()));
        }
        let (from, to) = (evidence.from_mono_ms.get(), evidence.to_mono_ms.get());
        let length = to.checked_sub(from).ok_or(RefusedEvidence::Malformed)?;
        let worked = length.checked_sub(evidence.excused_ms).ok_or(RefusedEvidence::Malformed)?;
        let (window_from, window_to) = match self.state() {
            SegmentState::Open => (self.terms().anchor.mono_ms.get(), u64::MAX),
            SegmentState::Closed { ended_at, .. } => {
                if received_at.micros_since(ended_at) > LATE_MAX_MICROS {
                    return Err(RefusedEvidence::TooLate(self.id().clone()));
                }
                (self.terms().anchor.mono_ms.get(), self.window_end(ended_at).get())
            }
        };
        let (start, end) = (from.max(window_from), (from + worked).min(window_to));
        let added_ms = self.coverage.insert(start, end)?;
        Ok(Applied { added_ms, known_ms: end.saturating_sub(start) - added_ms })
    }
}
