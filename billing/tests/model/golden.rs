//! The golden vector and single properties: M4, M9, M11, M16, M17, M19.

use proptest::prelude::*;
use tarn_billing::catch_up::{Step, catch_up};
use tarn_billing::charge::{BucketWidth, ChargeLine, buckets};
use tarn_billing::evidence::{Applied, LATE_MAX_MICROS, RefusedEvidence};
use tarn_billing::exhaustion::{Runway, forecast};
use tarn_billing::grant::GrantKind;
use tarn_billing::invoice::UsageLine;
use tarn_billing::money::Micros;
use tarn_billing::price::{Price, PriceVersion};
use tarn_billing::rate::{Rate, Seconds};
use tarn_billing::segment::{Anchor, CloseReason, InvalidSegment, Segment, Settled};
use tarn_billing::settlement::settle;
use tarn_billing::transfer::{InvalidTransfer, TransferKind};
use tarn_protocol::control::UsageEvidence;
use tarn_protocol::ids::TransferId;
use tarn_protocol::units::{BootId, Generation, MonoMillis};

use crate::ledger::Ledger;
use crate::world::{Run, at, card, disk, grant, offer};

fn run() -> Run {
    Run { instance: 1, generation: 1, offer: 0, primary: 3, ready: 0, skew: 77_000 }
}

/// A ledger with one open segment at `hourly` micros, and `credit` micros of trial credit.
fn ledger(hourly: i64, credit: i64) -> Ledger {
    let mut ledger = Ledger::new();
    ledger.give(grant(1, GrantKind::Trial, credit, 0, None));
    let rate = Rate::per_hour(Micros::new(hourly)).unwrap();
    let price = ledger.book.append(&offer(0), rate, at(0), at(0)).unwrap();
    ledger.insert(run().open(&price, 0));
    ledger
}

#[test]
fn m19_ten_yuan_at_two_forty_end_at_second_15000() {
    let mut ledger = ledger(2_400_000, 10_000_000);
    let grace_ms = 1_700;
    for minute in 0..250 {
        let now = at(minute * 60_000);
        let runway = forecast(ledger.segments.values(), &ledger.book, &ledger.funds(), now);
        assert_eq!(runway, Ok(Runway::Until(at(15_000_000))), "the end never moves");
        ledger.prove(&run().evidence(0, minute * 60_000, (minute + 1) * 60_000, 0), now);
        ledger.settle(now);
    }
    ledger.settle(at(14_999_999));
    assert_eq!(ledger.revenue(), Micros::new(9_999_333));

    // The agent enforces the same instant on its own clock, and takes a moment to do it.
    let segment = ledger.open_segments().next().unwrap();
    let run_until = segment.run_until(at(15_000_000));
    assert_eq!(run_until.mono_ms, run().mono(15_000_000));
    ledger.prove(&run().evidence(251, 15_000_000, 15_000_000 + grace_ms, 0), at(15_003_000));
    ledger.close(|_| true, at(15_000_000), CloseReason::BalanceExhausted);
    ledger.settle(at(15_003_000));
    assert_eq!(ledger.revenue().to_string(), "10.00");
    assert_eq!(ledger.funds().available(at(15_003_000)), Micros::ZERO);
    assert!(ledger.open_segments().next().is_none());
    ledger.audit();
}

#[test]
fn m19_a_late_close_still_costs_the_tenant_ten_yuan() {
    let mut ledger = ledger(2_400_000, 10_000_000);
    ledger.prove(&run().evidence(0, 0, 20_000_000, 0), at(20_000_000));
    let segment = ledger.open_segments().next().unwrap().clone();
    let plan = settle(&segment, &ledger.book, &ledger.funds(), at(20_000_000)).unwrap();
    assert_eq!((plan.after.seconds.get(), plan.unpaid.get()), (15_000, 5_000));
    assert_eq!(plan.amount().to_string(), "10.00");
    let due = catch_up(vec![segment], &ledger.book, &ledger.funds(), at(20_000_000)).unwrap();
    assert_eq!(due.steps, [Step::Exhaust { at: at(15_000_000) }], "what runs ends before all is settled");
    ledger.settle(at(20_000_000));
    let runway = forecast(ledger.segments.values(), &ledger.book, &ledger.funds(), at(20_000_000));
    assert_eq!(runway, Ok(Runway::Until(at(15_000_000))), "an end in the past is found");
}

#[test]
fn m11_the_earliest_end_stands_and_settled_seconds_stay() {
    let segment = ledger(2_400_000, 10_000_000).open_segments().next().unwrap().clone();
    let ends =
        [(40, CloseReason::HostLost), (20, CloseReason::UserRequest), (30, CloseReason::BalanceExhausted)];
    for turn in 0..3 {
        let mut order = ends;
        order.rotate_left(turn);
        let closed = order.into_iter().fold(segment.clone(), |segment, (seconds, reason)| {
            segment.close(at(seconds * 1000), reason).unwrap()
        });
        assert_eq!(closed.ended_at(), Some(at(20_000)));
        assert_eq!(closed.clone().close(at(90_000), CloseReason::Failed), Ok(closed));
    }
    let mut settled = ledger(2_400_000, 10_000_000);
    settled.prove(&run().evidence(0, 0, 60_000, 0), at(60_000));
    settled.settle(at(60_000));
    let segment = settled.open_segments().next().unwrap().clone();
    let refused = segment.clone().close(at(59_000), CloseReason::HostLost);
    assert_eq!(refused, Err(InvalidSegment::SettledPast(segment.id().clone())));
    // An end that becomes known when a settlement has gone past it is where the settled seconds are complete.
    let ended = segment.end(Some(at(59_000)), None, CloseReason::HostLost, at(61_000)).unwrap();
    assert_eq!((ended.ended_at(), ended.confirmed(at(90_000)).get()), (Some(at(60_000)), 60));
}

#[test]
fn evidence_of_another_run_is_refused() {
    let mut segment = ledger(2_400_000, 10_000_000).open_segments().next().unwrap().clone();
    let evidence = run().evidence(0, 0, 5_000, 0);
    let restarted = UsageEvidence { generation: Generation::new(2), ..evidence.clone() };
    let rebooted = UsageEvidence { boot_id: BootId::new("other"), ..evidence.clone() };
    let donor = UsageEvidence { primary: card(4), ..evidence.clone() };
    for other in [restarted, rebooted, donor] {
        let refused = RefusedEvidence::OtherRun(segment.id().clone());
        assert_eq!(segment.apply(&other, at(5_000)), Err(refused), "{other:?}");
    }
    for malformed in [
        UsageEvidence { excused_ms: 5_001, ..evidence.clone() },
        UsageEvidence { to_mono_ms: MonoMillis::new(0), ..evidence.clone() },
    ] {
        assert_eq!(segment.apply(&malformed, at(5_000)), Err(RefusedEvidence::Malformed));
    }
    assert_eq!(segment.apply(&evidence, at(5_000)), Ok(Applied { added_ms: 5_000, known_ms: 0 }));
    assert_eq!(segment.apply(&evidence, at(5_000)), Ok(Applied { added_ms: 0, known_ms: 5_000 }));
    let mut closed = segment.close(at(5_000), CloseReason::UserRequest).unwrap();
    let limit_ms = LATE_MAX_MICROS / 1_000;
    assert!(closed.apply(&evidence, at(5_000 + limit_ms)).is_ok());
    let refused = RefusedEvidence::TooLate(closed.id().clone());
    assert_eq!(closed.apply(&evidence, at(5_001 + limit_ms)), Err(refused));
}

#[test]
fn m17_reversals_go_back_to_the_bucket_and_never_beyond_the_charge() {
    let mut ledger = ledger(3_600_000, 10_000_000);
    ledger.prove(&run().evidence(0, 0, 5_000, 0), at(5_000));
    ledger.settle(at(5_000));
    let charge = ledger.transfers.values().find(|transfer| transfer.kind() == TransferKind::Usage).unwrap();
    assert_eq!(charge.amount(), Micros::new(5_000));
    let back = |amount, reversed| {
        charge.reversal(TransferId::new(at(0), 9), Micros::new(amount), Micros::new(reversed), at(6_000))
    };
    assert_eq!(back(5_000, 1), Err(InvalidTransfer::ExceedsOriginal));
    let reversal = back(2_000, 3_000).unwrap();
    assert_eq!((reversal.credit(), reversal.debit()), (charge.debit(), charge.credit()));
    assert_eq!(reversal.subject().reverses.as_ref(), Some(charge.id()));
    assert_eq!(
        reversal.reversal(TransferId::new(at(0), 8), Micros::new(1), Micros::ZERO, at(7_000)),
        Err(InvalidTransfer::NotReversible)
    );
}

#[test]
fn m16_a_year_of_eight_cards_at_the_top_price() {
    let year_ms = 365 * 24 * 3600 * 1000;
    let mut ledger = ledger(Rate::MAX.hourly().get(), i64::MAX / 4);
    ledger.prove(&run().evidence(0, 0, year_ms, 0), at(year_ms));
    let segment = ledger.open_segments().next().unwrap();
    let plan = settle(segment, &ledger.book, &ledger.funds(), at(year_ms)).unwrap();
    assert_eq!((plan.amount().get(), plan.unpaid), (8_760 * Rate::MAX.hourly().get(), Seconds::ZERO));
    assert!(Micros::checked_sum([plan.amount(); 8]).is_ok());
    assert!(forecast([segment], &ledger.book, &ledger.funds(), at(year_ms)).is_ok());
}

#[test]
fn m16_a_million_segments_sum_exactly() {
    // An hour each, at the highest price there is and one micro below it: nothing is lost to rounding or range.
    let hour = Seconds::new(3_600).unwrap();
    let below = Rate::per_hour(Micros::new(Rate::MAX.hourly().get() - 1)).unwrap();
    let charges = (0..1_000_000).map(|number| if number % 2 == 0 { Rate::MAX } else { below }.charged(hour));
    let sum = Micros::checked_sum(charges).unwrap();
    assert_eq!(sum.get(), 1_000_000 * Rate::MAX.hourly().get() - 500_000);
    assert!(
        sum.checked_add(Micros::new(i64::MAX - sum.get() + 1)).is_err(),
        "beyond is an error, never another sum"
    );
}

#[test]
fn buckets_cut_at_utc_hours() {
    let mut ledger = ledger(2_400_000, 10_000_000);
    ledger.prove(&run().evidence(0, 0, 9_000_500, 0), at(9_000_500));
    ledger.settle(at(9_000_500));
    let segments: Vec<_> = ledger.segments.values().cloned().collect();
    let cut = buckets(&segments, BucketWidth::Hour, at(-1), at(20_000_000)).unwrap();
    assert!(cut.windows(2).all(|pair| pair[0].ends_at == pair[1].starts_at));
    assert!(cut[1..].iter().all(|bucket| bucket.starts_at.as_micros() % 3_600_000_000 == 0));
    assert_eq!(cut.iter().map(|bucket| bucket.seconds.get()).sum::<i64>(), 9_000);
    assert_eq!(cut.iter().map(|bucket| bucket.amount.get()).sum::<i64>(), 6_000_000);
    assert!(buckets(&segments, BucketWidth::Hour, at(0), at(1 << 40)).is_err());
}

proptest! {
    #[test]
    fn m4_any_split_of_settlement_instants_bills_the_same(
        hourly in 1i64..1_000_000_000, credit in 1i64..50_000_000, mut instants in prop::collection::vec(0i64..60_000_000, 0..20),
    ) {
        let ends = [instants.len(), 0].map(|kept| {
            instants.truncate(kept);
            instants.sort_unstable();
            let mut ledger = ledger(hourly, credit);
            ledger.prove(&run().evidence(0, 0, 60_000_000, 0), at(0));
            instants.iter().chain([&60_000_000]).for_each(|instant| ledger.settle(at(*instant)));
            ledger.audit();
            (ledger.revenue(), ledger.segments, ledger.transfers.len())
        });
        prop_assert_eq!(ends[0].0, ends[1].0);
        prop_assert_eq!(&ends[0].1, &ends[1].1);
        prop_assert!(ends[0].2 >= ends[1].2);
    }

    #[test]
    fn m9_a_host_clock_that_lies_never_bills_beyond_control_plane_time(
        from in 0i64..10_000_000, claimed in 0i64..1_000_000_000, elapsed in 0i64..100_000_000,
    ) {
        let mut ledger = ledger(2_400_000, 1);
        ledger.prove(&run().evidence(0, from, from + claimed, 0), at(elapsed));
        let segment = ledger.open_segments().next().unwrap();
        let expected = (elapsed.min(from + claimed) - from).max(0) / 1000;
        prop_assert_eq!(segment.confirmed(at(elapsed)).get(), expected);
        let closed = segment.clone().close(at(elapsed / 2), CloseReason::UserRequest).unwrap();
        prop_assert!(closed.confirmed(at(1 << 40)).get() <= elapsed / 2000);
    }

    #[test]
    fn an_anchor_never_lies_before_its_bound(
        received in 0i64..1_000_000, age in 0u64..1_000_000, bound in 0i64..1_000_000,
    ) {
        let (report, ready) = (MonoMillis::new(5_000_000), MonoMillis::new(5_000_000 - age));
        let anchor = Anchor::from_report(at(received), BootId::new("b"), report, ready, at(bound));
        prop_assert!(anchor.at >= at(bound));
        prop_assert_eq!(anchor.instant_of(report), at(received).max(anchor.at));
        prop_assert_eq!(anchor.mono_at(anchor.instant_of(report)), report.max(anchor.mono_ms));
    }

    #[test]
    fn buckets_of_every_width_sum_to_the_line(
        hourly in 1i64..1_000_000_000, gib in 1u32..1_000, opened in 0i64..40_000_000_000, lasts in 0i64..90_000_000_000i64,
        gap in (0i64..80_000_000_000, 1i64..5_000_000), cuts in prop::collection::vec(0i64..140_000_000_000, 0..6),
    ) {
        // A disk over up to three years, and a card with a gap in its evidence, settled whole.
        let price = Price {
            offer_id: offer(0),
            version: PriceVersion::FIRST,
            rate: Rate::per_hour(Micros::new(hourly)).unwrap(),
            effective_from: at(0),
        };
        let disk = disk(gib, &price, opened).close(at(opened + lasts), CloseReason::Terminated).unwrap();
        let mut card = run().open(&price, 0);
        for (seq, from, to) in [(0, 0, gap.0), (1, gap.0 + gap.1, 100_000_000_000)] {
            card.apply(&run().evidence(seq, from, to, 0), at(100_000_000_000)).unwrap();
        }
        let end = at(140_000_000_000);
        let whole = |segment: Segment| {
            let seconds = segment.confirmed(end);
            let after = Settled { seconds, micros: segment.terms().rate.charged(seconds) };
            segment.settle_to(Settled::default(), after).unwrap()
        };
        let segments = [whole(disk), whole(card)];
        let lines: Vec<ChargeLine> = segments.iter().map(ChargeLine::of).collect();
        prop_assert_eq!(lines[0].seconds.get(), lasts / 1000, "every moment of a disk counts");
        let sums = |ranges: &[(i64, i64)], width| {
            let (mut seconds, mut micros) = (0, 0);
            for (from, to) in ranges.iter().filter(|(from, to)| from < to) {
                for bucket in buckets(&segments, width, at(*from), at(*to)).unwrap() {
                    (seconds, micros) = (seconds + bucket.seconds.get(), micros + bucket.amount.get());
                }
            }
            (seconds, micros)
        };
        let expected = (
            lines.iter().map(|line| line.seconds.get()).sum::<i64>(),
            lines.iter().map(|line| line.amount.get()).sum::<i64>(),
        );
        let mut cuts = [vec![0, 140_000_000_000], cuts].concat();
        cuts.sort_unstable();
        let ranges: Vec<(i64, i64)> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
        for width in [BucketWidth::Day, BucketWidth::Week, BucketWidth::Month, BucketWidth::Year] {
            prop_assert_eq!(sums(&ranges, width), expected, "{:?}", width);
        }
    }

    #[test]
    fn invoices_take_every_settled_second_once_however_late_it_is_proven(
        hourly in 1i64..1_000_000_000, steps in prop::collection::vec((0i64..9_000_000, 0i64..900_000, 0i64..1_000_000), 1..12),
    ) {
        let price = Price {
            offer_id: offer(0),
            version: PriceVersion::FIRST,
            rate: Rate::per_hour(Micros::new(hourly)).unwrap(),
            effective_from: at(0),
        };
        let (mut segment, mut invoiced, mut billed, mut now) = (run().open(&price, 0), Seconds::ZERO, 0, 0);
        // The last period ends after everything that can be proven.
        let last = (0, 0, 20_000_000);
        for (seq, (from, length, later)) in (0..).zip(steps.into_iter().chain([last])) {
            now += later;
            segment.apply(&run().evidence(seq, from, from + length, 0), at(now)).unwrap();
            let seconds = segment.confirmed(at(now));
            let after = Settled { seconds, micros: segment.terms().rate.charged(seconds) };
            let before = segment.settled();
            segment = segment.settle_to(before, after).unwrap();
            let period_to = at(now - later / 2);
            let taken = UsageLine::next(&segment, String::new(), invoiced, period_to);
            if let Some(line) = taken {
                prop_assert_eq!(line.from, invoiced);
                prop_assert!(line.to > line.from && line.to <= segment.settled().seconds);
                prop_assert_eq!(line.span().1.get() - line.span().0.get(), line.amount.get());
                billed += line.amount.get();
                invoiced = line.to;
            }
        }
        let rest = UsageLine::next(&segment, String::new(), invoiced, at(now));
        billed += rest.as_ref().map_or(0, |line| line.amount.get());
        prop_assert_eq!(billed, segment.settled().micros.get());
        let again = UsageLine::next(&segment, String::new(), segment.settled().seconds, at(1 << 40));
        prop_assert_eq!(again, None, "nothing is taken twice");
    }
}
