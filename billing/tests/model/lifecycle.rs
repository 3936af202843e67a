//! Worlds with money enough: whatever the order, number and delay of reports, settlements, stops and price changes, the ledger ends
//! at the truth counted tick by tick.

use tarn_billing::charge::{BucketWidth, ChargeLine, buckets};
use tarn_billing::grant::GrantKind;
use tarn_billing::meter::Meter;
use tarn_billing::money::Micros;
use tarn_billing::rate::{Rate, Seconds};
use tarn_billing::segment::{CloseReason, Segment};
use tarn_protocol::control::UsageEvidence;
use tarn_protocol::ids::InstanceId;

use crate::ledger::Ledger;
use crate::world::{Choices, Run, TICK_MS, at, card, grant, offer};

const END_MS: i64 = 900_000;

/// One run with what really happened to it.
#[derive(Debug)]
struct Story {
    run: Run,
    opened: i64,
    /// Acceptance of the stop: the end of billing.
    stopped: i64,
    /// Proven `[from, to)` intervals: those of reports that arrive at last.
    proven: Vec<(i64, i64)>,
    reports: Vec<UsageEvidence>,
}

#[derive(Debug)]
struct PriceChange {
    offer: i64,
    announced: i64,
    effective: i64,
    rate: Rate,
}

#[derive(Debug, Clone)]
enum Event {
    Open(usize),
    Report(UsageEvidence),
    Announce(usize),
    Settle,
    /// The ends that arrive together, in this order.
    Stop(usize, Vec<(i64, CloseReason)>),
}

/// One run of an instance, from `from` on, with the reports of its host.
fn story(choices: &mut Choices, instance: u128, generation: i64, from: i64) -> Story {
    let ready = from + choices.ticks(0, 30_000);
    let run = Run {
        instance,
        generation,
        offer: i64::try_from(instance % 2).unwrap(),
        primary: u8::try_from(instance * 8).unwrap() + u8::try_from(choices.between(0, 4)).unwrap(),
        ready,
        skew: choices.ticks(1_000, 5_000_000),
    };
    let stopped = ready + choices.ticks(TICK_MS, 200_000);
    let ended = stopped + choices.ticks(0, 5_000);
    let (mut proven, mut reports, mut at_ms) = (vec![], vec![], ready);
    while at_ms < ended {
        let to = (at_ms + choices.ticks(TICK_MS, 12_000)).min(ended);
        let excused = if choices.percent(15) { choices.ticks(0, to - at_ms + TICK_MS) } else { 0 };
        let lost = choices.percent(5);
        if !lost {
            proven.push((at_ms, to - excused));
            let seq = u64::try_from(reports.len()).unwrap();
            reports.push(run.evidence(seq, at_ms, to, excused));
        }
        at_ms = to;
    }
    let opened = (ready + choices.ticks(0, 3_000)).min(stopped - TICK_MS).max(ready);
    Story { run, opened, stopped, proven, reports }
}

fn stories(choices: &mut Choices) -> Vec<Story> {
    let mut stories = vec![];
    for instance in 1..=u128::try_from(choices.between(1, 4)).unwrap() {
        let mut from = choices.ticks(0, 60_000);
        for generation in 1..=choices.between(1, 4) {
            let story = story(choices, instance, generation, from);
            from = story.stopped + choices.ticks(5_000, 20_000);
            stories.push(story);
        }
    }
    stories
}

fn changes(choices: &mut Choices) -> Vec<PriceChange> {
    let mut changes = vec![];
    for offer in 0..2 {
        let mut effective = 0;
        for _ in 0..choices.between(0, 4) {
            let announced = effective + choices.ticks(TICK_MS, 200_000);
            effective = announced + choices.ticks(0, 60_000);
            changes.push(PriceChange { offer, announced, effective, rate: choices.rate() });
        }
    }
    changes
}

/// Everything the control plane will see, in an order that the seed picks.
fn schedule(choices: &mut Choices, stories: &[Story], changes: &[PriceChange]) -> Vec<(i64, i64, Event)> {
    let mut events = vec![];
    for (number, story) in stories.iter().enumerate() {
        events.push((story.opened, -1, Event::Open(number)));
        let mut ends = vec![(story.stopped, CloseReason::UserRequest)];
        let mut seen = story.stopped;
        if choices.percent(30) {
            seen += choices.ticks(0, 4_000);
            ends.insert(usize::from(choices.percent(50)), (seen, CloseReason::HostLost));
        }
        // A stop commits at once: nothing settles between its acceptance and its commit.
        events.push((story.stopped, -2, Event::Stop(number, ends)));
        for report in &story.reports {
            let made = i64::try_from(report.to_mono_ms.get()).unwrap() - story.run.skew;
            for _ in 0..choices.between(1, 6) {
                let delay = if choices.percent(10) { 300_000 } else { 20_000 };
                let arrives = made.max(story.opened) + choices.ticks(0, delay);
                events.push((arrives, choices.between(0, 1_000), Event::Report(report.clone())));
            }
        }
    }
    for (number, change) in changes.iter().enumerate() {
        events.push((change.announced, -3, Event::Announce(number)));
    }
    for _ in 0..choices.between(0, 40) {
        events.push((choices.ticks(0, END_MS), choices.between(0, 1_000), Event::Settle));
    }
    events.sort_by_key(|(time, tie, _)| (*time, *tie));
    events
}

fn drive(ledger: &mut Ledger, stories: &[Story], changes: &[PriceChange], events: Vec<(i64, i64, Event)>) {
    for (time, _, event) in events {
        let now = at(time);
        match event {
            Event::Open(number) => {
                let run = &stories[number].run;
                let price = ledger.book.at(&offer(run.offer), at(run.ready)).unwrap().clone();
                ledger.insert(run.open(&price, time));
            }
            Event::Report(evidence) => {
                let length = evidence.to_mono_ms.get() - evidence.from_mono_ms.get() - evidence.excused_ms;
                assert!(ledger.prove(&evidence, now) <= length, "M5: no millisecond counts twice");
            }
            Event::Announce(number) => {
                let PriceChange { offer: number, effective, rate, .. } = changes[number];
                ledger.book.append(&offer(number), rate, at(effective), now).unwrap();
            }
            Event::Settle => ledger.settle(now),
            Event::Stop(number, ends) => {
                let run = &stories[number].run;
                let instance_id = InstanceId::new(at(0), run.instance);
                let of_run = |segment: &Segment| {
                    segment.terms().instance_id == instance_id
                        && segment.terms().generation.get() == run.generation
                };
                for (ended, reason) in ends {
                    ledger.close(of_run, at(ended), reason);
                }
            }
        }
    }
}

/// What a run owes: per price in force, whole seconds of the ticks that were proven before the stop.
fn truth(story: &Story, changes: &[PriceChange], first: Rate) -> (i64, i64) {
    let mut pieces = vec![(story.run.ready, first)];
    for change in changes.iter().filter(|change| change.offer == story.run.offer) {
        match pieces.last_mut() {
            Some(last) if change.effective <= story.run.ready => *last = (story.run.ready, change.rate),
            _ if change.effective < story.stopped => pieces.push((change.effective, change.rate)),
            _ => {}
        }
    }
    let ends = pieces.iter().skip(1).map(|(from, _)| *from).chain([story.stopped]);
    let (mut seconds_in_all, mut micros) = (0, 0);
    for ((from, rate), to) in pieces.iter().zip(ends) {
        let proven = |tick: &i64| story.proven.iter().any(|(start, end)| (*start..*end).contains(tick));
        let ticks = (*from..to).step_by(50).filter(proven).count();
        let seconds = i64::try_from(ticks).unwrap() * TICK_MS / 1000;
        seconds_in_all += seconds;
        micros += rate.charged(Seconds::new(seconds).unwrap()).get();
    }
    (seconds_in_all, micros)
}

pub fn run(seed: u64) {
    let mut choices = Choices::of(seed);
    let (stories, changes) = (stories(&mut choices), changes(&mut choices));
    let rates = [choices.rate(), choices.rate()];

    // The same facts in two orders, settled at other instants: the same bill (M4, M7).
    let ends = [(); 2].map(|()| {
        let mut ledger = Ledger::new();
        ledger.give(grant(1, GrantKind::Trial, 5_000_000, 0, None));
        ledger.give(grant(2, GrantKind::Cash, 1_000_000_000_000, 0, None));
        for (number, rate) in (0..).zip(rates) {
            ledger.book.append(&offer(number), rate, at(0), at(0)).unwrap();
        }
        let events = schedule(&mut choices, &stories, &changes);
        drive(&mut ledger, &stories, &changes, events);
        ledger.settle(at(10 * END_MS));
        check(&ledger, &stories, &changes, rates);
        ledger
    });
    let [one, other] = ends;
    assert_eq!(one.segments, other.segments, "M7: segments");
    assert_eq!(one.funds(), other.funds(), "M4: buckets");
}

fn check(ledger: &Ledger, stories: &[Story], changes: &[PriceChange], rates: [Rate; 2]) {
    ledger.audit();
    let (mut seconds_in_all, mut micros_in_all) = (0, 0);
    for story in stories {
        let (seconds, micros) = truth(story, changes, rates[usize::try_from(story.run.offer).unwrap()]);
        let of_run: Vec<ChargeLine> = ledger
            .segments
            .values()
            .filter(|segment| segment.terms().instance_id == InstanceId::new(at(0), story.run.instance))
            .filter(|segment| segment.terms().generation.get() == story.run.generation)
            .map(ChargeLine::of)
            .collect();
        let billed: i64 = of_run.iter().map(|line| line.seconds.get()).sum();
        let charged: i64 = of_run.iter().map(|line| line.amount.get()).sum();
        assert_eq!((billed, charged), (seconds, micros), "M6, M10, B9: {story:?}");
        assert!(
            of_run.iter().all(|line| line.meter == Meter::Card(card(story.run.primary))),
            "M12: {of_run:?}"
        );
        (seconds_in_all, micros_in_all) = (seconds_in_all + seconds, micros_in_all + micros);
    }
    assert_eq!(ledger.revenue(), Micros::new(micros_in_all), "the ledger earned the truth");

    let segments: Vec<Segment> = ledger.segments.values().cloned().collect();
    let cut = buckets(&segments, BucketWidth::Hour, at(0), at(10 * END_MS)).unwrap();
    let seconds: i64 = cut.iter().map(|bucket| bucket.seconds.get()).sum();
    let amount: i64 = cut.iter().map(|bucket| bucket.amount.get()).sum();
    assert_eq!((seconds, amount), (seconds_in_all, micros_in_all), "buckets sum to the lines");
}
