//! What operators should look at.

use tarn_protocol::ids::EventId;
use tarn_protocol::units::Timestamp;

use crate::stored::{Json, rows};

rows! {
    AlertRow / AlertRaw {
        id: EventId,
        kind: String,
        /// Id of what it is about. One open alert for each kind and subject.
        subject: String,
        detail: Json<serde_json::Value>,
        created_at: Timestamp,
        cleared_at: Option<Timestamp>,
    }
}
