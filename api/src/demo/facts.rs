//! What the story observed, and the one line that says it.

use super::DemoError;

/// Only observed facts, and the amount that the published rule gives for the observed seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// CUDA devices that the program inside the instance counted.
    pub devices: u64,
    /// Bytes of that device, as the program read them.
    pub total_bytes: u64,
    /// Bytes that the program wrote, read back and found right.
    pub verified_bytes: u64,
    /// Cards other than the primary that held bytes while the program verified.
    pub donors: u64,
    /// Billed intervals of the instance.
    pub segments: u64,
    pub billed_micros: i64,
    /// Cumulative floor of rate × billed seconds.
    pub expected_micros: i64,
    /// Whether every segment names the primary's UUID.
    pub on_primary: bool,
    /// What the program asked of the device, all verified at its first and last words of each granule.
    pub allocated_bytes: u64,
    pub primary_bytes: u64,
}

impl Facts {
    /// Whether the story holds: the demo fails when it does not.
    pub fn check(&self) -> Result<(), DemoError> {
        let holds = [
            (self.devices == 1, "the program should count one device"),
            (self.allocated_bytes > self.primary_bytes, "the program should hold more than the primary has"),
            (self.verified_bytes > 0, "the program should verify bytes"),
            (self.donors == 3, "three donors should hold bytes"),
            (self.segments == 1, "there should be exactly one segment"),
            (self.on_primary, "the segment should name the primary"),
            (self.billed_micros == self.expected_micros, "the bill should be the cumulative floor"),
        ];
        match holds.iter().find(|(holds, _)| !holds) {
            None => Ok(()),
            Some((_, claim)) => Err(DemoError::Untrue(format!("{claim}; observed {self:?}"))),
        }
    }

    pub fn last_line(&self) -> String {
        format!(
            "demo: ok devices={} total_bytes={} verified_bytes={} donors={} segments={} billed_micros={} expected_micros={}",
            self.devices,
            self.total_bytes,
            self.verified_bytes,
            self.donors,
            self.segments,
            self.billed_micros,
            self.expected_micros
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            devices: 1,
            total_bytes: 96 << 30,
            verified_bytes: 1 << 20,
            donors: 3,
            segments: 1,
            billed_micros: 6_666,
            expected_micros: 6_666,
            on_primary: true,
            allocated_bytes: 90 << 30,
            primary_bytes: 24 << 30,
        }
    }

    #[test]
    fn a_story_that_does_not_hold_is_refused() {
        assert!(facts().check().is_ok());
        let wrong = [
            Facts { devices: 4, ..facts() },
            Facts { donors: 2, ..facts() },
            Facts { segments: 2, ..facts() },
            Facts { billed_micros: 6_667, ..facts() },
            Facts { on_primary: false, ..facts() },
            Facts { verified_bytes: 0, ..facts() },
            Facts { allocated_bytes: 1 << 30, ..facts() },
        ];
        for facts in wrong {
            assert!(facts.check().is_err(), "{facts:?}");
        }
    }
}
