//! Placement, leases and the instance lifecycle as typed states, without I/O.
