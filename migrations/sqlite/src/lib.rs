//! The portable queries compiled and checked against sqlite.
