//! The host agent: inventory, certificates, pools, instances, usage evidence.
