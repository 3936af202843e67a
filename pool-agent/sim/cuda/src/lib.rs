//! The simulated cuda driver library over host memory.
