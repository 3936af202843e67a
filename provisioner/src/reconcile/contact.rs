//! Contact with a host: which reports count, and when silence becomes a flag.

use tarn_protocol::units::{BootId, Sequence, Timestamp};

/// Silence after which a host is flagged; the flag itself is seen within 15 s.
pub const SILENCE_SECONDS_MAX: i64 = 12;
/// Boots remembered per host, so that a late report of an old boot is known as such.
const PAST_BOOTS_MAX: usize = 16;

/// Since when a host counts as unreachable: the instant its silence grew too long, or `None` while it talks.
pub fn unreachable_since(last_report_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let limit = last_report_at.plus_seconds(SILENCE_SECONDS_MAX);
    (now >= limit).then_some(limit)
}

/// The newest accepted report of a host and the boots before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportOrder {
    pub newest: Option<(BootId, Sequence)>,
    /// Oldest first.
    pub past_boots: Vec<BootId>,
}

impl ReportOrder {
    /// The order after a report, or `None` when the report is not newer than what was accepted: it changes nothing.
    pub fn admit(&self, boot_id: &BootId, seq: Sequence) -> Option<Self> {
        if self.past_boots.contains(boot_id) {
            return None;
        }
        let mut next = Self { newest: Some((boot_id.clone(), seq)), past_boots: self.past_boots.clone() };
        match &self.newest {
            Some((boot, newest)) if boot == boot_id && seq <= *newest => return None,
            Some((boot, _)) if boot != boot_id => {
                next.past_boots.push(boot.clone());
                let surplus = next.past_boots.len().saturating_sub(PAST_BOOTS_MAX);
                next.past_boots.drain(..surplus);
            }
            _ => {}
        }
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_newer_reports_of_the_newest_boot_count() {
        let mut order = ReportOrder::default();
        for (boot, seq, fresh) in [
            ("a", 1, true),
            ("a", 1, false),
            ("a", 3, true),
            ("a", 2, false),
            ("b", 1, true),
            ("a", 9, false),
            ("b", 2, true),
        ] {
            let next = order.admit(&BootId::new(boot), Sequence::new(seq));
            assert_eq!(next.is_some(), fresh, "{boot} {seq}");
            order = next.unwrap_or(order);
        }
    }

    #[test]
    fn l7_silence_is_a_flag_with_its_own_since() {
        let heard = Timestamp::from_micros(0);
        assert_eq!(unreachable_since(heard, heard.plus_seconds(5)), None);
        for seconds in [SILENCE_SECONDS_MAX, 60, 1_200] {
            let since = unreachable_since(heard, heard.plus_seconds(seconds));
            assert_eq!(since, Some(heard.plus_seconds(SILENCE_SECONDS_MAX)), "{seconds} s");
        }
    }
}
