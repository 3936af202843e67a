//! Which replica runs which worker.

use tarn_protocol::units::{Generation, Timestamp};

use crate::stored::rows;

rows! {
    ClaimRow / ClaimRaw {
        worker: String,
        /// The replica.
        holder: String,
        /// Grows when the holder changes; work of an older fence is refused.
        fence: Generation,
        expires_at: Timestamp,
    }
}
