//! The broker's socket, with clients that behave and clients that do not. Cards are memory files, except where the process itself
//! is under test, which runs on the simulated driver.

#![allow(unsafe_code)] // A thread takes another user's id, and a page is mapped against its seal.
#![allow(clippy::disallowed_methods, reason = "tests own their clock")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod bench_of_clients;
mod hostile;
mod process;
mod restart;
