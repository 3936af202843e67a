//! What root inside an instance may still do: own its files, change its users, bind low ports. Nothing that leaves it.

use rustix::thread::CapabilitySet;

const KEPT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT);

/// Narrows what the next program of this thread can have. An unprivileged agent has nothing to take away.
pub fn narrow() {
    for capability in CapabilitySet::all().difference(KEPT).iter() {
        // Unknown to this kernel, or not ours to give: either way the next program does not have it.
        let _refused = rustix::thread::remove_capability_from_bounding_set(capability);
    }
}
