//! What an operator does by hand: making another operator, letting a host in, giving credit; and the log of all of it.

pub mod credits;
pub mod join_tokens;
pub mod log;
pub mod promote;
