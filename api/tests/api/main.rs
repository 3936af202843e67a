//! The control plane as its clients see it: in this process, on a loopback port, in virtual time.

mod api_keys;
mod authorization;
mod contract;
mod foreign;
mod harness;
mod idempotency;
mod money;
mod openapi;
mod people;
