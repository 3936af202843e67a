//! Worlds where the money ends, or nearly: the forecast and the settlements against a walk tick by tick that draws every second from
//! its grant as it completes.

use tarn_billing::exhaustion::{Runway, forecast};
use tarn_billing::grant::{Grant, GrantKind};
use tarn_billing::money::Micros;
use tarn_billing::rate::{Rate, Seconds};
use tarn_billing::segment::CloseReason;
use tarn_protocol::ids::InstanceId;
use tarn_protocol::units::Timestamp;

use crate::ledger::Ledger;
use crate::world::{Choices, Run, TICK_MS, at, grant, offer};

const END_MS: i64 = 240_000;

#[derive(Debug, Clone)]
enum Event {
    Give(Grant),
    Announce { offer: i64, effective: i64, rate: Rate },
    Start(Run),
    Stop { instance: u128 },
    Settle,
}

#[derive(Debug)]
struct Facts {
    rates: [Rate; 3],
    /// In order of time.
    events: Vec<(i64, Event)>,
}

fn rate(choices: &mut Choices) -> Rate {
    let hourly = choices.between(1, 4) * choices.one_of([1_000_003, 3_600_000, 2_400_000, 500_000_000]);
    if choices.percent(10) { choices.rate() } else { Rate::per_hour(Micros::new(hourly)).unwrap() }
}

fn facts(choices: &mut Choices) -> Facts {
    let rates = [(); 3].map(|()| rate(choices));
    let mut events = vec![];
    for number in 0..choices.between(1, 5) {
        let given = if number == 0 { 0 } else { choices.ticks(0, END_MS) };
        let kind = choices.one_of([GrantKind::Trial, GrantKind::Promo, GrantKind::Cash]);
        let expires =
            (kind != GrantKind::Cash && choices.percent(60)).then(|| given + choices.ticks(TICK_MS, END_MS));
        // Often there is plenty until an expiry, and little after it.
        let amount = choices.between(1, if expires.is_some() { 5_000_000 } else { 200_000 });
        let id = u128::from(number.unsigned_abs()) + 1;
        events.push((given, Event::Give(grant(id, kind, amount, given, expires))));
        // The runway must foresee an expiry; a worker that comes by at that instant must not matter.
        events.extend(expires.filter(|_| choices.percent(50)).map(|expires| (expires, Event::Settle)));
    }
    for instance in 1..=choices.between(1, 4) {
        let ready = choices.ticks(0, END_MS / 4);
        let skew = choices.ticks(1_000, 5_000_000);
        let primary = u8::try_from(instance).unwrap();
        let instance = u128::from(instance.unsigned_abs());
        let run = Run { instance, generation: 1, offer: i64::from(primary) - 1, primary, ready, skew };
        events.push((ready, Event::Start(run)));
        if choices.percent(40) {
            events.push((ready + choices.ticks(TICK_MS, END_MS), Event::Stop { instance }));
        }
    }
    for offer in 0..3 {
        if choices.percent(40) {
            let announced = choices.ticks(TICK_MS, END_MS);
            let effective = announced + choices.ticks(0, END_MS / 4);
            events.push((announced, Event::Announce { offer, effective, rate: rate(choices) }));
        }
    }
    for _ in 0..choices.between(0, 20) {
        events.push((choices.ticks(0, END_MS), Event::Settle));
    }
    events.retain(|(time, _)| *time <= END_MS);
    events.sort_by_key(|(time, _)| *time);
    Facts { rates, events }
}

/// How a world ended: when the money did, if it did, what was earned and what each grant still has.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    exhausted: Option<Timestamp>,
    revenue: Micros,
    left: Micros,
}

/// The control plane: evidence comes with each event, the runway is computed anew after each, and its timer fires first.
fn control_plane(choices: &mut Choices, facts: &Facts) -> Outcome {
    let mut ledger = Ledger::new();
    for (number, rate) in (0..).zip(facts.rates) {
        ledger.book.append(&offer(number), rate, at(0), at(0)).unwrap();
    }
    let (mut runs, mut runway): (Vec<Run>, Runway) = (vec![], Runway::Unlimited);
    let events = facts.events.iter().cloned().chain([(END_MS, Event::Settle)]);
    for (time, event) in events {
        if let Runway::Until(end) = runway
            && end <= at(time)
        {
            let overrun = choices.ticks(0, 2_000);
            prove(choices, &mut ledger, &runs, time + overrun);
            ledger.close(|segment| segment.ended_at().is_none(), end, CloseReason::BalanceExhausted);
            ledger.settle(end);
            ledger.settle(at(time + overrun));
            return outcome(&ledger, Some(end));
        }
        prove(choices, &mut ledger, &runs, time);
        ledger.take_back(at(time));
        match event {
            Event::Give(grant) => {
                ledger.settle(at(time));
                ledger.give(grant);
            }
            Event::Announce { offer: number, effective, rate } => {
                ledger.book.append(&offer(number), rate, at(effective), at(time)).unwrap();
            }
            Event::Start(run) => {
                let price = ledger.book.at(&offer(run.offer), at(run.ready)).unwrap().clone();
                ledger.insert(run.open(&price, time));
                runs.push(run);
            }
            Event::Stop { instance } => {
                let stopped = InstanceId::new(at(0), instance);
                let of_run =
                    |segment: &tarn_billing::segment::Segment| segment.terms().instance_id == stopped;
                ledger.close(
                    |segment| of_run(segment) && segment.ended_at().is_none(),
                    at(time),
                    CloseReason::UserRequest,
                );
                runs.retain(|run| run.instance != instance);
                // What a closed segment still owes weighs on the others.
                if choices.percent(50) {
                    ledger.settle(at(time));
                }
            }
            Event::Settle => ledger.settle(at(time)),
        }
        runway = forecast(ledger.segments.values(), &ledger.book, &ledger.funds(), at(time)).unwrap();
    }
    outcome(&ledger, None)
}

fn prove(choices: &mut Choices, ledger: &mut Ledger, runs: &[Run], until: i64) {
    for run in runs {
        let known = if choices.percent(50) { run.ready } else { (until - 60_000).max(run.ready) };
        for from in [run.ready, known] {
            ledger.prove(&run.evidence(0, from, until.max(from), 0), at(until));
        }
    }
}

fn outcome(ledger: &Ledger, exhausted: Option<Timestamp>) -> Outcome {
    ledger.audit();
    let funds = ledger.funds();
    let left = funds.grants().iter().filter(|grant| lasts(grant)).map(Grant::remaining);
    Outcome { exhausted, revenue: ledger.revenue(), left: Micros::checked_sum(left).unwrap() }
}

/// Whether a grant outlives the world, so that what is left of it is not a matter of when it was taken back.
fn lasts(grant: &Grant) -> bool {
    grant.terms().expires_at.is_none_or(|expires_at| expires_at > at(2 * END_MS))
}

/// One price's part of one run, in milliseconds of the world.
#[derive(Debug, Clone)]
struct Piece {
    instance: u128,
    offer: i64,
    rate: Rate,
    from: i64,
    to: i64,
}

impl Piece {
    fn charged(&self, time: i64) -> i64 {
        let millis = time.clamp(self.from, self.to) - self.from;
        self.rate.charged(Seconds::new(millis / 1000).unwrap()).get()
    }

    /// Whether it begins or completes a second at `time`.
    fn beats(&self, time: i64) -> bool {
        (self.from..=self.to).contains(&time) && (time - self.from) % 1000 == 0
    }
}

#[derive(Debug, Default)]
struct Walk {
    pieces: Vec<Piece>,
    announced: Vec<(i64, i64, Rate)>,
    /// Terms and what is left, in draw order.
    grants: Vec<(Grant, i64)>,
    revenue: i64,
    last_beat: i64,
}

impl Walk {
    fn cost(&self, time: i64) -> i64 {
        self.pieces.iter().map(|piece| piece.charged(time) - piece.charged(time - TICK_MS)).sum()
    }

    /// Notes whether a second begins or completes at `time`.
    fn beats(&mut self, time: i64) -> bool {
        let beats = self.pieces.iter().any(|piece| piece.beats(time));
        if beats {
            self.last_beat = time;
        }
        beats
    }

    fn pay(grants: &mut [(Grant, i64)], mut cost: i64, time: i64) -> bool {
        for (_, left) in grants.iter_mut().filter(|(grant, _)| grant.spendable(at(time))) {
            let part = cost.min(*left);
            *left -= part;
            cost -= part;
        }
        cost == 0
    }

    /// Whether what is known now leads to a second that cannot be paid before any other beat.
    fn next_beat_is_unpaid(&self, time: i64) -> bool {
        let running = self.pieces.iter().any(|piece| piece.to > time);
        let mut beats = (1..=END_MS / TICK_MS).map(|ticks| time + ticks * TICK_MS);
        let next = beats.find(|time| self.pieces.iter().any(|piece| piece.beats(*time)));
        running && next.is_some_and(|next| !Self::pay(&mut self.grants.clone(), self.cost(next), next))
    }

    fn start(&mut self, run: &Run, rates: [Rate; 3]) {
        let rate = rates[usize::try_from(run.offer).unwrap()];
        let first = Piece { instance: run.instance, offer: run.offer, rate, from: run.ready, to: i64::MAX };
        self.pieces.push(first);
        for (offer, effective, rate) in self.announced.clone() {
            self.change(offer, effective, rate, Some(run.instance));
        }
    }

    fn change(&mut self, offer: i64, effective: i64, rate: Rate, only: Option<u128>) {
        let mut next = vec![];
        for piece in self.pieces.iter_mut().filter(|piece| piece.offer == offer && piece.to > effective) {
            if only.is_some_and(|instance| instance != piece.instance) {
                continue;
            }
            if effective <= piece.from {
                piece.rate = rate;
            } else {
                next.push(Piece { rate, from: effective, to: piece.to, ..piece.clone() });
                piece.to = effective;
            }
        }
        self.pieces.extend(next);
    }

    fn event(&mut self, time: i64, event: &Event, rates: [Rate; 3]) {
        match event {
            Event::Give(grant) => {
                self.grants.push((grant.clone(), grant.remaining().get()));
                let never = i64::MAX;
                self.grants.sort_by_key(|(grant, _)| {
                    let expires_at = grant.terms().expires_at.map_or(never, Timestamp::as_micros);
                    (grant.terms().kind == GrantKind::Cash, expires_at, grant.id().clone())
                });
            }
            Event::Announce { offer, effective, rate } => {
                self.announced.push((*offer, *effective, *rate));
                self.change(*offer, *effective, *rate, None);
            }
            Event::Start(run) => self.start(run, rates),
            Event::Stop { instance } => {
                self.pieces.retain(|piece| piece.instance != *instance || piece.from < time);
                let of_run = self.pieces.iter_mut().filter(|piece| piece.instance == *instance);
                of_run.for_each(|piece| piece.to = piece.to.min(time));
            }
            Event::Settle => {}
        }
    }

    fn outcome(&self, exhausted: Option<i64>) -> Outcome {
        let left = self.grants.iter().filter(|(grant, _)| lasts(grant));
        let left = Micros::new(left.map(|(_, left)| *left).sum());
        Outcome { exhausted: exhausted.map(at), revenue: Micros::new(self.revenue), left }
    }
}

fn oracle(facts: &Facts) -> Outcome {
    let mut walk = Walk::default();
    let mut events = facts.events.iter().peekable();
    for time in (0..=END_MS).step_by(50) {
        let cost = walk.cost(time);
        assert!(Walk::pay(&mut walk.grants, cost, time), "looked ahead");
        walk.revenue += cost;
        if walk.beats(time) && walk.next_beat_is_unpaid(time) {
            return walk.outcome(Some(time));
        }
        while let Some((_, event)) = events.next_if(|(due, _)| *due == time) {
            walk.event(time, event, facts.rates);
            walk.beats(time);
            if walk.next_beat_is_unpaid(time) {
                return walk.outcome(Some(walk.last_beat));
            }
        }
    }
    walk.outcome(None)
}

pub fn run(seed: u64) {
    let mut choices = Choices::of(seed);
    let facts = facts(&mut choices);
    let (found, expected) = (control_plane(&mut choices, &facts), oracle(&facts));
    assert_eq!(found, expected, "M3, M13, M19: {facts:#?}");
}
