//! The nvml stand-in through which a tenant sees its pool as one device.
