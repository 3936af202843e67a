//! Every boot of a host that reported.

use tarn_protocol::ids::HostId;
use tarn_protocol::units::{BootId, MonoMillis, Sequence, Timestamp};

use crate::stored::rows;

rows! {
    HostBootRow / HostBootRaw {
        host_id: HostId,
        boot_id: BootId,
        /// Receipt of its first accepted report.
        first_at: Timestamp,
        /// Of its newest accepted report, as the two below.
        seq: Sequence,
        last_at: Timestamp,
        last_mono_ms: MonoMillis,
    }
}
