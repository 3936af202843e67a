//! The simulated nvml driver library over host memory.
