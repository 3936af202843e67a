//! What a link is worth: from what was measured and what the tools say, one of four grades, and what keeps it from a better one. Pure.

use tarn_protocol::hardware::{AtomicTrial, LinkClass, LinkGrade, LinkLimit};

use super::advice;
use super::atomics;
use super::circumstances::Circumstances;
use super::words::Measured;

/// Share of the nominal bandwidth that an NVLink must reach.
const NOMINAL_PERCENT: u64 = 60;

/// A probe that passed, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    pub class: LinkClass,
    pub grade: LinkGrade,
    pub limits: Vec<LinkLimit>,
}

/// The judgement of a failed probe.
pub fn failed() -> (LinkClass, LinkGrade) {
    (LinkClass::None, LinkGrade::D)
}

/// Class and grade of a link whose data was right. One of which the tools say nothing is PCIe.
pub fn judge(measured: &Measured, trials: &[AtomicTrial], circumstances: &Circumstances) -> Judgement {
    let mut limits = Vec::new();
    let mut limit = |code: &str, found: String| {
        limits.push(LinkLimit { code: code.to_owned(), detail: advice::told(code, &found) });
    };
    if let Some(fault) = &measured.atomics_fault {
        limit("atomics_fault", fault.clone());
    } else if !atomics::native(trials) {
        let lost: Vec<String> = trials
            .iter()
            .filter(|trial| trial.found != trial.expected)
            .map(|trial| format!("{} {} of {}", trial.kind, trial.found, trial.expected))
            .collect();
        limit("atomics_missing", format!("updates arrived: {}", lost.join(", ")));
    }
    if circumstances.same_card {
        limit("same_card", String::new());
        return Judgement { class: LinkClass::None, grade: LinkGrade::D, limits };
    }
    if circumstances.class == LinkClass::Nvlink {
        let slower = measured.read_mb_per_second.min(measured.write_mb_per_second);
        let nominal = circumstances.nominal_mb_per_second;
        if slower * 100 < nominal * NOMINAL_PERCENT {
            limit("nvlink_slow", format!("{slower} of {nominal} MB/s"));
        }
        // A lame NVLink keeps its class; it is good for no more than copies.
        let grade = if limits.is_empty() { LinkGrade::A } else { LinkGrade::C };
        return Judgement { class: LinkClass::Nvlink, grade, limits };
    }
    let grade = if circumstances.iommu_translating == Some(true) {
        limit("iommu_translating", "the kernel translates this card's addresses".to_owned());
        LinkGrade::D
    } else if circumstances.same_switch {
        LinkGrade::B
    } else {
        limit("through_cpu", "peers go through the CPU".to_owned());
        LinkGrade::C
    };
    Judgement { class: LinkClass::PcieP2p, grade, limits }
}

#[cfg(test)]
mod tests {
    use super::super::circumstances::tests::{NVLINK, PCIE};
    use super::*;

    fn trials(native: bool) -> Vec<AtomicTrial> {
        let nanos = [1; 4];
        let lost = u64::from(!native);
        let sums: Vec<u64> = (0..4).map(|kind| 2 * atomics::operations(kind) - lost).collect();
        atomics::trials(&sums, &nanos).unwrap()
    }

    fn check(
        circumstances: Circumstances,
        native: bool,
        read: u64,
        expected: (LinkClass, LinkGrade),
        limits: &[&str],
    ) {
        let measured =
            Measured { read_mb_per_second: read, write_mb_per_second: read, ..Measured::default() };
        let judged = judge(&measured, &trials(native), &circumstances);
        assert_eq!((judged.class, judged.grade), expected, "{circumstances:?} {native} {read}");
        let codes: Vec<&str> = judged.limits.iter().map(|limit| limit.code.as_str()).collect();
        assert_eq!(codes, limits);
        assert!(judged.limits.iter().all(|limit| limit.detail.len() > 40), "{:?}", judged.limits);
    }

    #[test]
    fn grades_follow_class_atomics_bandwidth_and_circumstances() {
        use LinkGrade::{A, B, C, D};
        let (nvlink, pcie) = (LinkClass::Nvlink, LinkClass::PcieP2p);
        check(NVLINK, true, 50_000, (nvlink, A), &[]);
        check(NVLINK, true, 33_600, (nvlink, A), &[]);
        check(NVLINK, true, 33_599, (nvlink, C), &["nvlink_slow"]);
        check(NVLINK, false, 50_000, (nvlink, C), &["atomics_missing"]);
        check(NVLINK, false, 10, (nvlink, C), &["atomics_missing", "nvlink_slow"]);
        check(PCIE, false, 24_000, (pcie, B), &["atomics_missing"]);
        check(PCIE, true, 24_000, (pcie, B), &[]);
        let across = Circumstances { same_switch: false, ..PCIE };
        check(across, true, 24_000, (pcie, C), &["through_cpu"]);
        let translating = Circumstances { iommu_translating: Some(true), ..PCIE };
        check(translating, true, 24_000, (pcie, D), &["iommu_translating"]);
        check(Circumstances { iommu_translating: None, ..PCIE }, true, 24_000, (pcie, B), &[]);
        check(Circumstances { iommu_translating: Some(true), ..NVLINK }, true, 50_000, (nvlink, A), &[]);
        let same = Circumstances { same_card: true, class: LinkClass::None, ..PCIE };
        check(same, true, 9_000_000, (LinkClass::None, D), &["same_card"]);
    }

    #[test]
    fn atomics_that_the_driver_ends_are_not_native() {
        let measured = Measured { atomics_fault: Some("launch failed".to_owned()), ..Measured::default() };
        let judged = judge(&measured, &[], &PCIE);
        assert_eq!((judged.grade, judged.limits[0].code.as_str()), (LinkGrade::B, "atomics_fault"));
    }
}
