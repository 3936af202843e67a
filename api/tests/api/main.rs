//! The control plane as its clients see it: in this process, on a loopback port, in virtual time.

#![allow(clippy::unwrap_used, reason = "a test that cannot unwrap has failed")]

#[macro_use]
mod harness;

mod admin_cli;
mod api_keys;
mod authorization;
mod books;
mod contract;
#[expect(dead_code, reason = "shared with the store's tests, which use all of it")]
#[path = "../../../migrations/store/tests/store/database.rs"]
mod database;
mod demo;
mod fleet;
mod foreign;
mod hangups;
mod idempotency;
mod invoices;
mod money;
mod money_invariants;
mod openapi;
mod operators;
mod payments;
mod people;
mod real;
mod statements;
