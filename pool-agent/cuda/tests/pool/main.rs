//! The stand-in driver through the real loader, on the simulated driver, with a real broker.

#![allow(clippy::disallowed_methods, reason = "tests own their clock")]

mod rig;
mod sees_one_device;
mod survives;
