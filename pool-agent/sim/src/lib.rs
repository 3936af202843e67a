//! The simulated host: cards made of host memory, shared by every process that loads the simulated driver.
//!
//! The real agent, broker and stand-ins run on a simulated host unchanged; only the two driver libraries differ. A host is
//! a directory: `lib/` (the libraries), `host.json` (what the cards are), `state` (what is in use, and which faults are
//! on), `dev/` (a file for each device node). Nothing outlives the directory: no daemon, no environment variable.
//!
//! * [`preset`]: host descriptions as data files, resolved into a [`machine`] document.
//! * [`state`]: the mapped file and its robust lock; [`ledger`] owns the byte counts in it, [`holder`] knows which
//!   processes are alive, `accounting` remembers those that are not, [`lingering`] finds descriptors that outlived their handles.
//! * [`fault`]: what an operator or a test breaks at run time.
//! * [`host`]: creating and opening a host directory; [`locate`] finds it from a library's own path.

#![allow(unsafe_code)]
// The mapped state file and its process-shared mutex are raw memory; every block says why it is sound.
// Card numbers and table indices are bounded by the constants in `layout`, far below every integer's limit.
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]

mod accounting;
pub mod fault;
pub mod holder;
pub mod host;
pub mod layout;
pub mod ledger;
pub mod lingering;
pub mod locate;
pub mod machine;
pub mod preset;
pub mod state;

pub use fault::Fault;
pub use host::Host;
