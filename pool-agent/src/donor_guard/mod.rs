//! Only the primary is metered, so nobody computes on another card of the pool. The stand-in is no wall: a tenant who opens the real
//! driver finds the donors' device nodes, because importing their memory needs them. This is the wall: what computes on a card that its
//! tenant did not rent is found twice a second, and ended or charged, with evidence.
//!
//! Who a process belongs to is told by its cgroup, which a tenant can neither leave nor name; where the machine has no cgroups, by its
//! pid namespace; never by its name. [`allowed`] knows the processes of the agent itself (certificates, scrubbers). [`sentry`] looks at
//! one card and judges, without touching anything; [`watch`] asks the card and acts. Lives that begin and end between two looks are
//! in the driver's accounting where it is switched on ([`lives`]; it is never switched by us), and a donor that works without any visible
//! process raises an alarm ([`load`]). What driver and kernel can refuse
//! by themselves is in [`driver`], for operators who want it.

pub mod allowed;
pub mod check;
pub mod driver;
pub mod lives;
pub mod load;
pub mod owner;
pub mod roster;
pub mod sentry;
pub mod watch;
