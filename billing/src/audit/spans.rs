//! A union of half-open intervals, added up the plain way.

/// Kept unsorted up to this many, so that one long run of touching intervals costs nothing and disorder costs little.
const LOOSE_MAX: usize = 1024;

#[derive(Debug, Default, Clone)]
pub(super) struct Spans {
    spans: Vec<(u64, u64)>,
    /// The first `merged` are sorted, apart and full.
    merged: usize,
}

impl Spans {
    pub(super) fn add(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        // Evidence mostly begins where the last one ended.
        match self.spans.last_mut() {
            Some(last) if last.0 <= from && from <= last.1 => last.1 = last.1.max(to),
            _ => self.spans.push((from, to)),
        }
        if self.spans.len() - self.merged > LOOSE_MAX {
            self.merge();
        }
    }

    /// Sorted, disjoint, with a gap between any two.
    pub(super) fn union(&mut self) -> &[(u64, u64)] {
        self.merge();
        &self.spans
    }

    fn merge(&mut self) {
        self.spans.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(self.spans.len());
        for (from, to) in self.spans.drain(..) {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        self.merged = merged.len();
        self.spans = merged;
    }
}

/// Milliseconds of sorted, disjoint `spans` before `end`.
pub(super) fn millis_before(spans: &[(u64, u64)], end: u64) -> u64 {
    let inside = spans.iter().take_while(|(from, _)| *from < end);
    inside.map(|(from, to)| (*to).min(end) - from).sum()
}
