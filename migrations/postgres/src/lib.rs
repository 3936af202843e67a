//! The portable queries compiled and checked against postgres.
