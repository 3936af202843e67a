//! Contact with a host: when silence becomes a flag.

use tarn_protocol::units::Timestamp;

/// Silence after which a host is flagged; the flag itself is seen within 15 s.
pub const SILENCE_SECONDS_MAX: i64 = 12;

/// Since when a host counts as unreachable: the instant its silence grew too long, or `None` while it talks.
pub fn unreachable_since(last_report_at: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let limit = last_report_at.plus_seconds(SILENCE_SECONDS_MAX);
    (now >= limit).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

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
