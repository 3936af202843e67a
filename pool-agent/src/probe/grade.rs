//! What a link is worth: from what was measured and what the tools say, one of four grades. Pure.

use tarn_protocol::hardware::{LinkClass, LinkGrade, LinkHint, ProbeOutcome};

use super::words::Measured;

/// Share of the nominal bandwidth that an NVLink must reach.
const NOMINAL_PERCENT: u64 = 60;

/// What is known of a link beside its probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Circumstances {
    pub class: LinkClass,
    pub same_switch: bool,
    /// Decimal megabytes per second and direction over all links of the pair; 0 when it cannot be told.
    pub nominal_mb_per_second: u64,
    /// `None` when it cannot be told.
    pub iommu_translating: Option<bool>,
    /// A display on either card has been seen to corrupt peer traffic.
    pub display_active: bool,
}

impl Circumstances {
    pub fn of(hint: &LinkHint, nominal_mb_per_second: u64, iommu_translating: Option<bool>) -> Self {
        Self {
            class: hint.class,
            same_switch: hint.same_switch,
            nominal_mb_per_second,
            iommu_translating,
            display_active: false,
        }
    }
}

/// Class and grade of a probed link. A probe that passed over a link of which the tools say nothing is PCIe.
pub fn grade(
    outcome: &ProbeOutcome,
    measured: &Measured,
    circumstances: Circumstances,
) -> (LinkClass, LinkGrade) {
    let ProbeOutcome::Passed { atomics_native } = outcome else {
        return (LinkClass::None, LinkGrade::D);
    };
    let fast_enough = measured.read_mb_per_second.min(measured.write_mb_per_second) * 100
        >= circumstances.nominal_mb_per_second * NOMINAL_PERCENT;
    match circumstances.class {
        LinkClass::Nvlink if *atomics_native && fast_enough => (LinkClass::Nvlink, LinkGrade::A),
        // A lame NVLink keeps its class; it is good for no more than copies.
        LinkClass::Nvlink => (LinkClass::Nvlink, LinkGrade::C),
        LinkClass::PcieP2p | LinkClass::None => {
            let pooling = circumstances.same_switch && !circumstances.display_active;
            let translating = circumstances.iommu_translating == Some(true);
            let grade = if pooling && !translating {
                LinkGrade::B
            } else if translating {
                LinkGrade::D
            } else {
                LinkGrade::C
            };
            (LinkClass::PcieP2p, grade)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NVLINK: Circumstances = Circumstances {
        class: LinkClass::Nvlink,
        same_switch: true,
        nominal_mb_per_second: 56_000,
        iommu_translating: Some(false),
        display_active: false,
    };
    const PCIE: Circumstances =
        Circumstances { class: LinkClass::PcieP2p, nominal_mb_per_second: 0, ..NVLINK };

    fn check(circumstances: Circumstances, atomics: bool, read: u64, expected: (LinkClass, LinkGrade)) {
        let measured = Measured {
            read_mb_per_second: read,
            write_mb_per_second: read,
            atomics_native: atomics,
            ..Measured::default()
        };
        let outcome = ProbeOutcome::Passed { atomics_native: atomics };
        assert_eq!(grade(&outcome, &measured, circumstances), expected, "{circumstances:?} {atomics} {read}");
    }

    #[test]
    fn grades_follow_class_atomics_bandwidth_and_circumstances() {
        use LinkGrade::{A, B, C, D};
        check(NVLINK, true, 50_000, (LinkClass::Nvlink, A));
        check(NVLINK, true, 33_600, (LinkClass::Nvlink, A));
        check(NVLINK, true, 33_599, (LinkClass::Nvlink, C));
        check(NVLINK, false, 50_000, (LinkClass::Nvlink, C));
        check(PCIE, false, 24_000, (LinkClass::PcieP2p, B));
        check(Circumstances { same_switch: false, ..PCIE }, false, 24_000, (LinkClass::PcieP2p, C));
        check(Circumstances { display_active: true, ..PCIE }, false, 24_000, (LinkClass::PcieP2p, C));
        check(
            Circumstances { iommu_translating: Some(true), ..PCIE },
            false,
            24_000,
            (LinkClass::PcieP2p, D),
        );
        check(Circumstances { iommu_translating: None, ..PCIE }, false, 24_000, (LinkClass::PcieP2p, B));
    }

    #[test]
    fn a_failed_probe_is_no_link_whatever_the_tools_say() {
        let outcome = ProbeOutcome::Failed { reason: "p2p_data_mismatch".to_owned(), detail: String::new() };
        assert_eq!(grade(&outcome, &Measured::default(), NVLINK), (LinkClass::None, LinkGrade::D));
    }
}
