//! From a request to values: the only ways in. Each answers its own failures as problems.
//!
//! [`caller`] holds the extractors whose type proves who may call; they come first in a handler's parameters, so that a request
//! without a credential learns nothing about the shape of the rest.

pub mod body;
pub mod caller;
pub mod once;
pub mod page;
pub mod path;
pub mod query;
pub mod sign_in;
