//! Tarn control plane: HTTP API, workers and the tarn command.
//!
//! * [`http`]: the surface: one file per noun, extractors, the error document.
//! * [`app`]: use cases, each one transaction.
//! * [`auth`]: who is asking: sessions, API keys, roles and scopes.
//! * [`demo`]: the whole story on one machine, told by an API client.
//! * [`serve`]: a running control plane in this process.
//! * [`till`]: the seam behind which a payment provider sits.
//! * [`state`], [`config`], [`clock`], [`entropy`], [`wakeups`]: what everything below `main` is given.

pub mod app;
pub mod auth;
pub mod clock;
pub mod config;
pub mod demo;
pub mod entropy;
pub mod failpoint;
pub mod http;
pub mod metrics;
pub mod openapi;
pub mod serve;
pub mod state;
pub mod till;
pub mod wakeups;
pub mod workers;
