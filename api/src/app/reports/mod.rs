//! What is read of the record afterwards, exact to the micro and the millisecond: statements, revenue, unbilled time, evidence.
//! Nothing here writes.

use tarn_protocol::units::Timestamp;

pub mod evidence;
pub mod leased;
pub mod revenue;
pub mod statement;

/// Half-open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    pub from: Timestamp,
    pub to: Timestamp,
}
