//! Units: bytes, instants, spans and generations, each a newtype so that none is taken for another.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($inner:ty), $from:ident, $get:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name($inner);

        impl $name {
            pub const fn $from(value: $inner) -> Self {
                Self(value)
            }

            pub const fn $get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

unit!(
    /// A size in bytes.
    Bytes(u64), new, get
);
unit!(
    /// An instant: microseconds since 1970-01-01 UTC, issued by the control plane only.
    Timestamp(i64), from_micros, as_micros
);
unit!(
    /// A host's CLOCK_MONOTONIC in milliseconds; means something only together with a [`BootId`].
    MonoMillis(u64), new, get
);
unit!(
    /// A fencing number that only grows: an older one can never act.
    Generation(i64), new, get
);
unit!(
    /// Place of a report in the sequence of one boot of one agent.
    Sequence(u64), new, get
);

impl Bytes {
    pub const MIB: u64 = 1 << 20;
    pub const GIB: u64 = 1 << 30;

    pub const fn mib(count: u64) -> Self {
        Self(count * Self::MIB)
    }

    pub const fn gib(count: u64) -> Self {
        Self(count * Self::GIB)
    }

    /// Rounded down to a multiple of `granule` (> 0).
    pub const fn floor_to(self, granule: Self) -> Self {
        Self(self.0 / granule.0 * granule.0)
    }
}

impl Timestamp {
    pub const fn plus_micros(self, micros: i64) -> Self {
        Self(self.0 + micros)
    }

    pub const fn plus_seconds(self, seconds: i64) -> Self {
        Self(self.0 + seconds * 1_000_000)
    }

    /// The instant that a clock issues after `last` while the machine's wall shows `wall`: never the same twice, never an earlier one.
    pub const fn issued(last: Self, wall: Self) -> Self {
        let next = last.0.saturating_add(1);
        if wall.0 > next { wall } else { Self(next) }
    }

    /// Microseconds from `earlier` to here; negative when `earlier` is later.
    pub const fn micros_since(self, earlier: Self) -> i64 {
        self.0 - earlier.0
    }
}

impl Generation {
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// One boot of one host's kernel (`/proc/sys/kernel/random/boot_id`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(String);

impl BootId {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
