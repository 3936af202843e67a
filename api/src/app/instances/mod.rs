//! Use cases on what tenants rent. Each is one transaction: read the dossier, decide purely, apply the effects, announce.

pub mod apply;
pub mod change;
pub mod claim;
pub mod create;
pub mod dossier;
pub mod start;
