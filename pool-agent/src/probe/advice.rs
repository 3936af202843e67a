//! What a person can do about each reason: said with every certificate that is not the best, and with every pool that is refused.

/// One sentence for a reason code of a probe; empty for codes that this build does not know.
pub fn advice(code: &str) -> &'static str {
    match code {
        "p2p_data_mismatch" => {
            "calls succeed but bytes are lost: switch the IOMMU to passthrough (iommu=pt) and access control on the bridges off, then order a new probe"
        }
        "p2p_enable_failed" => {
            "the driver promises peer access and refuses it: compare `nvidia-smi topo -p2p rw`, restart the driver, then order a new probe"
        }
        "no_p2p" => {
            "these cards have no peer access on this driver: sell them as single cards, or bridge them where the model has NVLink"
        }
        "probe_timeout" => {
            "a kernel across the link did not end: look for an Xid in the kernel log and reset both cards before a new probe"
        }
        "probe_crashed" => {
            "a process of the probe died: look for an Xid and for killed processes in the kernel log, then order a new probe"
        }
        "probe_error" => {
            "a driver call failed that works on a healthy idle card: see that nothing else uses either card, then order a new probe"
        }
        "mig_member" => {
            "MIG is on, and its instances have no peer access: disable MIG on both cards or sell instances of one card"
        }
        "display_active" => {
            "a display on a card corrupts peer traffic: move the display to another card, then order a new probe"
        }
        "bar1_too_small" => {
            "peers reach a card only through its BAR1 window: enable Resizable BAR in the firmware, or sell the card alone"
        }
        "iommu_translating" => {
            "peer writes may vanish under a translating IOMMU: boot with iommu=pt or the IOMMU off, then order a new probe"
        }
        "nvlink_slow" => {
            "below 60 % of what its links should carry: reseat the bridge, look for Xid 74 and for links that are down (`nvidia-smi nvlink -s`)"
        }
        "atomics_missing" => {
            "a kernel that counts across this link loses updates: no transparent pool on NVLink; over PCIe only for tenants who accept it"
        }
        "atomics_fault" => {
            "a kernel that counts across this link is ended by the driver: no transparent pool on NVLink; over PCIe only for tenants who accept it"
        }
        "through_cpu" => {
            "the cards sit under different switches: good for copies, not for a pool; move one card beside the other"
        }
        "same_card" => "proves driver, kernels and path, and no link: name two cards for a certificate",
        _ => "",
    }
}

/// What was found, and what can be done.
pub fn told(code: &str, found: &str) -> String {
    match (found, advice(code)) {
        (found, "") => found.to_owned(),
        ("", advice) => advice.to_owned(),
        (found, advice) => format!("{found}; {advice}"),
    }
}
