use proptest::prelude::*;
use tarn_protocol::control::UsageEvidence;
use tarn_protocol::ids::{GpuUuid, InstanceId, SegmentId, TenantId};
use tarn_protocol::units::{Generation, MonoMillis, Sequence};

use super::*;
use crate::meter::Meter;
use crate::money::Micros;
use crate::price::PriceVersion;
use crate::rate::Rate;
use crate::segment::{Anchor, SegmentTerms, Settled};

const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_777);

fn card() -> GpuUuid {
    GpuUuid::from_bytes([1; 16])
}

fn boot() -> BootId {
    BootId::new("boot")
}

fn at_ms(millis: i64) -> Timestamp {
    START.plus_micros(millis * MICROS_PER_MILLI)
}

/// Opened at `opened` milliseconds after the start, when the host's clock showed as many and 5,000 more.
fn opened(number: u128, opened: i64) -> Segment {
    let at = at_ms(opened);
    Segment::open(SegmentTerms {
        id: SegmentId::new(at, number),
        tenant_id: TenantId::new(START, 1),
        instance_id: InstanceId::new(START, 1),
        generation: Generation::new(1),
        offer_id: "pool-96".parse().unwrap(),
        meter: Meter::Card(card()),
        price_version: PriceVersion::FIRST,
        rate: Rate::per_hour(Micros::new(2_400_000)).unwrap(),
        anchor: Anchor { at, boot_id: boot(), mono_ms: MonoMillis::new(5_000 + opened.unsigned_abs()) },
    })
}

/// Adds proof of `[from, to)` milliseconds after the start, the last `excused` of them excused.
fn proven(mut segment: Segment, from: i64, to: i64, excused: u64) -> Segment {
    let evidence = UsageEvidence {
        seq: Sequence::new(1),
        boot_id: boot(),
        instance_id: segment.terms().instance_id.clone(),
        generation: segment.terms().generation,
        primary: card(),
        from_mono_ms: MonoMillis::new(5_000 + from.unsigned_abs()),
        to_mono_ms: MonoMillis::new(5_000 + to.unsigned_abs()),
        excused_ms: excused,
    };
    segment.apply(&evidence, at_ms(to)).unwrap();
    segment
}

fn settled(segment: Segment, now: Timestamp) -> Segment {
    let (before, seconds) = (segment.settled(), segment.confirmed(now));
    let after = Settled { seconds, micros: segment.terms().rate.charged(seconds) };
    segment.settle_to(before, after).unwrap()
}

fn step(millis: i64, state: MeteredState) -> Step {
    Step { at: at_ms(millis), state, by_operator: false }
}

/// The stretches as milliseconds after the lease began, with a word each.
fn told(lease: &Lease<'_>) -> Vec<(i64, i64, &'static str)> {
    let start = millis_of(lease.from);
    let word = |spent| match spent {
        Spent::Billed { .. } => "billed",
        Spent::Unbilled(reason) => reason.as_str(),
    };
    account(lease).iter().map(|one| (one.from_ms - start, one.to_ms - start, word(one.spent))).collect()
}

#[test]
fn a_life_without_trouble_costs_its_start_and_its_stop() {
    let segment = proven(opened(1, 2_000), 2_000, 62_500, 0);
    let segment = segment.close(at_ms(62_500), CloseReason::UserRequest).unwrap();
    let segment = settled(segment, at_ms(70_000));
    let steps = [
        step(0, MeteredState::Preparing),
        step(2_100, MeteredState::Running),
        step(62_500, MeteredState::Stopping),
    ];
    let (segments, now) = ([segment], at_ms(70_000));
    let lease =
        Lease { from: START, to: at_ms(65_000), steps: &steps, segments: &segments, excused: &[], now };
    assert_eq!(
        told(&lease),
        [
            (0, 2_000, "starting"),
            (2_000, 62_000, "billed"),
            (62_000, 62_500, "rounding"),
            (62_500, 65_000, "stop_latency"),
        ]
    );
}

#[test]
fn gaps_are_excused_or_lost_and_the_open_end_is_on_its_way() {
    let segment = proven(opened(1, 0), 0, 10_000, 3_000);
    let segment = settled(proven(segment, 15_000, 20_000, 0), at_ms(20_000));
    let excused = [Excused { boot_id: boot(), from_mono_ms: 12_000, to_mono_ms: 15_000 }];
    let (segments, now) = ([segment], at_ms(26_000));
    let steps = [step(0, MeteredState::Running)];
    let lease = Lease { from: START, to: now, steps: &steps, segments: &segments, excused: &excused, now };
    assert_eq!(
        told(&lease),
        [
            (0, 7_000, "billed"),
            (7_000, 10_000, "degraded_by_us"),
            (10_000, 15_000, "unreachable"),
            (15_000, 20_000, "billed"),
            (20_000, 26_000, "pending"),
        ]
    );
}

#[test]
fn what_follows_an_end_has_the_name_of_the_end_until_the_record_knows_better() {
    for (reason, state, before, after) in [
        (CloseReason::BalanceExhausted, MeteredState::Stopping, "stop_latency", "stop_latency"),
        (CloseReason::Degraded, MeteredState::DegradedByUs, "degraded_by_us", "degraded_by_us"),
        (CloseReason::HostLost, MeteredState::HostFault, "host_fault", "host_fault"),
        (CloseReason::Degraded, MeteredState::Stopping, "degraded_by_us", "stop_latency"),
    ] {
        let segment = proven(opened(1, 0), 0, 10_000, 0).close(at_ms(10_000), reason).unwrap();
        let segments = [settled(segment, at_ms(20_000))];
        let steps = [step(0, MeteredState::Running), step(14_000, state)];
        let now = at_ms(200_000);
        let lease =
            Lease { from: START, to: at_ms(20_000), steps: &steps, segments: &segments, excused: &[], now };
        // Neighbours of one reason stay apart where the record changed.
        let expected = [(0, 10_000, "billed"), (10_000, 14_000, before), (14_000, 20_000, after)];
        assert_eq!(told(&lease), expected, "{reason:?}");
    }
}

#[test]
fn a_drain_is_the_operators_and_money_that_ended_is_unpaid() {
    let segment = proven(opened(1, 0), 0, 10_000, 0).close(at_ms(10_000), CloseReason::UserRequest).unwrap();
    let (before, seconds) = (segment.settled(), crate::rate::Seconds::new(4).unwrap());
    let after = Settled { seconds, micros: segment.terms().rate.charged(seconds) };
    let segments = [segment.settle_to(before, after).unwrap()];
    let steps = [
        step(0, MeteredState::Running),
        Step { at: at_ms(10_000), state: MeteredState::Stopping, by_operator: true },
    ];
    let now = at_ms(100_000);
    let lease =
        Lease { from: START, to: at_ms(12_000), steps: &steps, segments: &segments, excused: &[], now };
    let expected = [(0, 4_000, "billed"), (4_000, 10_000, "unpaid"), (10_000, 12_000, "operator")];
    assert_eq!(told(&lease), expected);
    // Just after the end it may still be settled.
    let lease = Lease { now: at_ms(12_000), ..lease };
    assert_eq!(told(&lease)[1], (4_000, 10_000, "pending"));
}

/// Any life: segments that follow each other, with any proof, settlement, steps and excuses.
fn lives() -> impl Strategy<Value = (Vec<Segment>, Vec<Step>, Vec<Excused>, i64, i64)> {
    let parts = prop::collection::vec(
        (
            0_i64..5_000,
            1_i64..20_000,
            prop::collection::vec((0_i64..20_000, 1_i64..9_000, 0_u64..2_000), 0..5),
            0_i64..25,
            0_usize..9,
        ),
        0..4,
    );
    let steps = prop::collection::vec((0_i64..90_000, 0_usize..9, prop::bool::ANY), 0..8);
    let excused = prop::collection::vec((0_u64..80_000, 1_u64..4_000), 0..4);
    (parts, steps, excused, -2_000_i64..3_000, 0_i64..95_000).prop_map(
        |(parts, steps, excused, from, length)| {
            let (mut at, mut segments) = (0, Vec::new());
            for (number, (gap, length, proofs, paid, reason)) in (1..).zip(parts) {
                let (opens, ends) = (at + gap, at + gap + length);
                let mut segment = opened(number, opens);
                for (from, length, excused) in proofs {
                    let excused = excused.min(length.unsigned_abs());
                    segment = proven(segment, opens + from, opens + from + length, excused);
                }
                let segment = segment.close(at_ms(ends), CloseReason::ALL[reason]).unwrap();
                let seconds = segment.confirmed(at_ms(ends)).min(crate::rate::Seconds::new(paid).unwrap());
                let (before, micros) = (segment.settled(), segment.terms().rate.charged(seconds));
                segments.push(segment.settle_to(before, Settled { seconds, micros }).unwrap());
                at = ends;
            }
            let mut steps: Vec<Step> = steps
                .into_iter()
                .map(|(at, state, by_operator)| Step {
                    at: at_ms(at),
                    state: MeteredState::ALL[state],
                    by_operator,
                })
                .collect();
            steps.sort_by_key(|step| step.at);
            let excused = excused
                .into_iter()
                .map(|(from, length)| Excused {
                    boot_id: boot(),
                    from_mono_ms: from,
                    to_mono_ms: from + length,
                })
                .collect();
            (segments, steps, excused, from, from + length)
        },
    )
}

proptest! {
    /// Leased time is billed time plus unbilled time by reason, to the millisecond.
    #[test]
    fn stretches_follow_each_other_and_are_the_whole_lease((segments, steps, excused, from, to) in lives()) {
        let (from, to, now) = (at_ms(from), at_ms(to), at_ms(200_000));
        let lease = Lease { from, to, steps: &steps, segments: &segments, excused: &excused, now };
        let stretches = account(&lease);
        let mut at = millis_of(from);
        for stretch in &stretches {
            prop_assert!(stretch.millis() > 0);
            prop_assert_eq!(stretch.from_ms, at, "no gap, no overlap");
            at = stretch.to_ms;
        }
        prop_assert_eq!(at.max(millis_of(to)), millis_of(to));
        prop_assert_eq!(stretches.iter().map(Stretch::millis).sum::<i64>(), millis_of(to) - millis_of(from));
    }

    /// A lease around all of its segments bills exactly what was settled, and each charged millisecond has its own number.
    #[test]
    fn billed_time_is_what_was_settled((segments, steps, excused, _, _) in lives()) {
        let (from, to, now) = (at_ms(-1), at_ms(100_000), at_ms(200_000));
        let lease = Lease { from, to, steps: &steps, segments: &segments, excused: &excused, now };
        let mut charged = vec![0; segments.len()];
        for stretch in account(&lease) {
            if let Spent::Billed { first_ms } = stretch.spent {
                let place = stretch.segment.unwrap();
                prop_assert_eq!(first_ms, charged[place], "in order, none twice");
                charged[place] += stretch.millis().unsigned_abs();
            }
        }
        for (segment, charged) in segments.iter().zip(charged) {
            prop_assert_eq!(charged, segment.settled().seconds.get().unsigned_abs() * 1000);
        }
    }

    /// Two halves of a lease say what the whole says.
    #[test]
    fn a_period_is_a_part_of_the_lease((segments, steps, excused, from, to) in lives(), at in 0_i64..95_000) {
        let now = at_ms(200_000);
        let lease = Lease { from: at_ms(from), to: at_ms(to), steps: &steps, segments: &segments, excused: &excused, now };
        let middle = millis_of(at_ms(at));
        let whole = account(&lease);
        let halves = [(i64::MIN, middle), (middle, i64::MAX)].map(|(from, to)| {
            whole.iter().filter_map(|stretch| stretch.clipped(from, to)).map(|part| part.millis()).sum::<i64>()
        });
        prop_assert_eq!(halves[0] + halves[1], whole.iter().map(Stretch::millis).sum::<i64>());
        for part in whole.iter().filter_map(|stretch| stretch.clipped(middle, i64::MAX)) {
            let of = whole.iter().find(|stretch| stretch.to_ms == part.to_ms).unwrap();
            if let (Spent::Billed { first_ms: part_first }, Spent::Billed { first_ms }) = (part.spent, of.spent) {
                prop_assert_eq!(part_first - first_ms, (part.from_ms - of.from_ms).unsigned_abs());
            }
        }
    }
}
