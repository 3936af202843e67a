//! `/v1/admin`: the operator's side. Every handler takes an [`crate::http::extract::caller::Operator`].

pub mod alerts;
pub mod audit;
pub mod credits;
pub mod gpus;
pub mod hosts;
pub mod join_tokens;
pub mod links;
pub mod log;
pub mod price_book;
pub mod refunds;
pub mod reports;
pub mod tenants;
