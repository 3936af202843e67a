//! The simulated driver through the real loader: C programs compiled here, the witness, and `nvml-wrapper`.

#![allow(clippy::unwrap_used)] // tests

mod driver {
    pub mod bench;
    mod links;
    mod memory;
    mod monitoring;
    mod processes;
    mod rules;
}
