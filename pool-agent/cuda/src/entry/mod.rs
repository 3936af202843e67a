//! What each intercepted call does, by family. Every function receives the real driver's form of the very symbol that was called.

pub(crate) mod alloc;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod ipc;
pub(crate) mod opening;
pub(crate) mod pointer;
pub(crate) mod resolver;
pub(crate) mod stream_ordered;
pub(crate) mod vmm;
