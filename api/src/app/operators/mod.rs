//! What an operator does by hand: making another operator, letting a host in.

pub mod join_tokens;
pub mod promote;
