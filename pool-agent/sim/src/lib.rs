//! The simulated driver's shared machine: presets, state, faults.
