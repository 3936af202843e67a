//! A donor whose multiprocessors work while it shows no process: kernels of others read its memory without that. Pure.

/// Percent of the sample period in which a kernel ran.
const BUSY_PERCENT: u32 = 10;
/// Looks in a row: one may catch a certificate or a scrubber on its way out.
const LOOKS: u32 = 4;

#[derive(Debug, Default)]
pub struct LoadAlarm {
    busy: u32,
}

impl LoadAlarm {
    /// True once for each time that the donor begins to work unexplained.
    pub fn look(&mut self, utilization_percent: Option<u32>, explained: bool) -> bool {
        let busy = !explained && utilization_percent.is_some_and(|percent| percent >= BUSY_PERCENT);
        self.busy = if busy { self.busy.saturating_add(1) } else { 0 };
        self.busy == LOOKS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(looks: &[(u32, bool)], alarms: usize) {
        let mut alarm = LoadAlarm::default();
        let raised = looks.iter().filter(|(percent, explained)| alarm.look(Some(*percent), *explained));
        assert_eq!(raised.count(), alarms, "{looks:?}");
    }

    #[test]
    fn an_unexplained_load_alarms_once_and_a_passing_one_not() {
        check(&[(50, false); 3], 0);
        check(&[(50, false); 9], 1);
        check(&[(9, false); 9], 0);
        check(&[(50, true); 9], 0);
        check(&[[(50, false); 4], [(0, false); 4], [(50, false); 4]].concat(), 2);
        assert!(!LoadAlarm::default().look(None, false));
    }
}
