//! `/v1/admin`: the operator's side. Every handler takes an [`crate::http::extract::caller::Operator`].

pub mod credits;
pub mod join_tokens;
pub mod price_book;
pub mod tenants;
