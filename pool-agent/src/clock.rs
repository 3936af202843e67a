//! The host's own clock: CLOCK_MONOTONIC under the name of this boot. Wall time is the control plane's.

use std::path::Path;

use rustix::time::{ClockId, clock_gettime};
use tarn_protocol::units::{BootId, MonoMillis};

const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

#[derive(Debug, Clone)]
pub struct HostClock {
    boot_id: BootId,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot read this boot's id from {BOOT_ID_FILE}")]
pub struct NoBootId(#[source] std::io::Error);

impl HostClock {
    /// `boot_id` stands in for the kernel's, for tests of a restarted host.
    pub fn open(boot_id: Option<String>) -> Result<Self, NoBootId> {
        let text = match boot_id {
            Some(text) => text,
            None => std::fs::read_to_string(Path::new(BOOT_ID_FILE)).map_err(NoBootId)?,
        };
        Ok(Self { boot_id: BootId::new(text.trim()) })
    }

    pub fn boot_id(&self) -> &BootId {
        &self.boot_id
    }

    pub fn now(&self) -> MonoMillis {
        MonoMillis::new(milliseconds(ClockId::Monotonic))
    }

    /// Milliseconds since boot in which the host was suspended: boot time counts them, the monotonic clock does not, so usage
    /// evidence, which is monotonic, never claims them.
    pub fn suspended_ms(&self) -> u64 {
        milliseconds(ClockId::Boottime).saturating_sub(milliseconds(ClockId::Monotonic))
    }
}

fn milliseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}
