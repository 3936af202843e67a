//! Cash through a payment provider that misbehaves: Stripe's adapter against the sandbox, over real HTTP, on both engines.

pub mod till;

mod auto;
mod callbacks;
mod given_back;
mod limits;
mod promises;
mod refunds;
mod told;
mod watched;
