//! The sweep: no second of a card, and none of an instance and SKU, is in two segments.

use tarn_protocol::ids::SegmentId;
use tarn_protocol::units::{BootId, Timestamp};

use super::difference::{Difference, Rule, shown};

/// A segment as an interval of its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpanFact {
    /// The card, or the instance and the SKU.
    pub owner: String,
    pub segment_id: SegmentId,
    pub started_at: Timestamp,
    /// `None`: still open.
    pub ended_at: Option<Timestamp>,
    pub boot_id: BootId,
    /// The first and the last proven millisecond of that boot, if any.
    pub proven: Option<(u64, u64)>,
}

/// A stream for each kind of owner: spans of one owner together, in order of their start.
#[derive(Debug, Default)]
pub struct Overlaps {
    owner: Option<String>,
    /// The span that reaches furthest.
    last: Option<SpanFact>,
    pub(super) seen: u64,
}

impl Overlaps {
    pub fn span(&mut self, fact: SpanFact) -> Result<(), Difference> {
        if self.owner.as_ref() != Some(&fact.owner) {
            (self.owner, self.last) = (Some(fact.owner.clone()), None);
        }
        self.seen += 1;
        if fact.ended_at == Some(fact.started_at) {
            return Ok(()); // nothing is in it
        }
        let row = || format!("segment {} of {}", fact.segment_id, fact.owner);
        if let Some(last) = &self.last {
            let over = last.ended_at.is_some_and(|ended_at| ended_at <= fact.started_at);
            if !over {
                let wanted =
                    format!("not before {} ends at {}", last.segment_id, shown(last.ended_at.as_ref()));
                return Err(Difference::new(Rule::Overlap, row(), "start", wanted, fact.started_at));
            }
            // The same moments of the host's own clock, whatever the control plane's clock said.
            if let (true, Some((_, end)), Some((start, _))) =
                (last.boot_id == fact.boot_id, last.proven, fact.proven)
                && start < end
            {
                let wanted = format!("not before {end} ms, where {} ends", last.segment_id);
                return Err(Difference::new(Rule::Overlap, row(), "first proven moment", wanted, start));
            }
        }
        self.last = Some(fact);
        Ok(())
    }

    /// Between the streams of two kinds of owner.
    pub fn next_kind(&mut self) {
        (self.owner, self.last) = (None, None);
    }
}
