//! Whether a report is news: decided by `(boot_id, seq)` alone, never by arrival.
//!
//! A host that rebooted comes back with a new boot id and a sequence that starts again. A boot that was replaced stays dead: a
//! report of it that was made before its successor was first heard is merely late, one made after proves that two machines use
//! one credential. "Made after" is read from the report's own clock: the old boot's clock at its last accepted report, plus the
//! control plane's time from there to the successor's first report, plus slack for clock drift and delay.

use tarn_protocol::units::{BootId, MonoMillis, Sequence, Timestamp};

/// How far an old boot's clock may seem ahead before its report proves a clone.
const SLACK_MILLIS: i64 = 5_000;

/// What is remembered of one boot of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownBoot {
    pub boot_id: BootId,
    /// Receipt of its first accepted report.
    pub first_at: Timestamp,
    /// Of its last accepted report: sequence, receipt and its own clock.
    pub seq: Sequence,
    pub last_at: Timestamp,
    pub last_mono_ms: MonoMillis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Newer than everything known: becomes the record.
    Fresh,
    /// Older than something known: changes nothing.
    Stale,
    /// Made by a boot that was replaced, after it was replaced.
    Cloned,
}

/// Judges a report of `boot_id`; `boots` holds every boot of the host, the newest last.
pub fn freshness(boots: &[KnownBoot], boot_id: &BootId, seq: Sequence, mono_ms: MonoMillis) -> Freshness {
    let Some(position) = boots.iter().position(|known| known.boot_id == *boot_id) else {
        return Freshness::Fresh;
    };
    let known = &boots[position];
    match boots.get(position + 1) {
        None if seq > known.seq => Freshness::Fresh,
        Some(successor) if seq > known.seq && made_after(known, successor, mono_ms) => Freshness::Cloned,
        _ => Freshness::Stale,
    }
}

fn made_after(known: &KnownBoot, successor: &KnownBoot, mono_ms: MonoMillis) -> bool {
    let replaced_after_ms = successor.first_at.micros_since(known.last_at).max(0) / 1000;
    let made_after_ms = i64::try_from(mono_ms.get()).unwrap_or(i64::MAX)
        - i64::try_from(known.last_mono_ms.get()).unwrap_or(i64::MAX);
    made_after_ms > replaced_after_ms + SLACK_MILLIS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(name: &str, first: i64, last: i64, seq: u64, mono: u64) -> KnownBoot {
        let at = |seconds| Timestamp::from_micros(seconds * 1_000_000);
        KnownBoot {
            boot_id: BootId::new(name),
            first_at: at(first),
            seq: Sequence::new(seq),
            last_at: at(last),
            last_mono_ms: MonoMillis::new(mono),
        }
    }

    #[test]
    fn reports_are_ordered_by_boot_and_sequence_and_a_living_ghost_is_a_clone() {
        // Boot a was last heard at 100 s with its clock at 50 s; boot b was first heard at 160 s.
        let boots = [boot("a", 0, 100, 7, 50_000), boot("b", 160, 200, 3, 40_000)];
        let check = |name: &str, seq, mono, expected| {
            let found = freshness(&boots, &BootId::new(name), Sequence::new(seq), MonoMillis::new(mono));
            assert_eq!(found, expected, "{name} {seq} {mono}");
        };
        check("b", 4, 41_000, Freshness::Fresh);
        check("b", 3, 41_000, Freshness::Stale);
        check("c", 1, 0, Freshness::Fresh);
        check("a", 7, 50_000, Freshness::Stale);
        check("a", 8, 51_000, Freshness::Stale);
        check("a", 9, 110_000, Freshness::Stale);
        check("a", 9, 200_000, Freshness::Cloned);
    }
}
