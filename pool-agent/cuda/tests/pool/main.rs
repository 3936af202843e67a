//! The stand-in driver through the real loader, on the simulated driver, with a real broker.

#![allow(clippy::disallowed_methods, reason = "tests own their clock")]
#![allow(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod compound;
mod fractions;
mod hints;
mod host_tier;
mod loaders;
mod moments;
mod ordered;
mod placement;
mod quota;
mod reaching;
mod residue;
mod rig;
mod sees_one_device;
mod shares;
mod survives;
mod unpooled;
