//! A world: one control plane, its hosts, the network between them, and true time. It carries a script out and, at its end, lets every
//! fault heal, ends every instance, delivers what is still on its way, and compares the ledger with the oracle's bill.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;

use tarn_protocol::control::Report;
use tarn_protocol::ids::{HostId, InstanceId};
use tarn_protocol::units::{Sequence, Timestamp};
use tarn_provisioner::lifecycle::State;

use crate::choices::Choices;
use crate::control_plane::{ControlPlane, EPOCH};
use crate::host::Host;
use crate::script::{Script, What};
use crate::verdict::{self, Acceptance, Summary};
use crate::{audit, fleet};

const DAY_MS: i64 = 24 * 3_600_000;
/// A world that is not quiet by then never will be.
const LAST_MS: i64 = 40 * DAY_MS;
/// Commits between two audits of everything.
const AUDIT_EVERY: u64 = 64;

#[derive(Debug, Clone)]
enum Event {
    Happening(usize),
    Commit { stop: bool, id: InstanceId, accepted: Timestamp },
    Report(usize),
    Deliver { host: usize, report: Rc<Report>, life: Option<u32> },
    Acknowledge { host: usize, life: u32, through: Sequence },
    Pull(usize),
    Reconcile,
    Exhaust,
    Wake(usize),
    AgentUp(usize),
    PowerOn(usize),
}

/// The wire between a host and the control plane.
#[derive(Debug, Clone, Copy, Default)]
struct Wire {
    up_cut_until: i64,
    down_cut_until: i64,
    slow_until: i64,
    slow_ms: i64,
}

#[derive(Debug)]
pub struct World {
    script: Script,
    now_ms: i64,
    control_plane: ControlPlane,
    down_until: i64,
    hosts: Vec<Host>,
    wires: Vec<Wire>,
    queue: BinaryHeap<Reverse<(i64, u64)>>,
    events: BTreeMap<u64, Event>,
    queued: u64,
    reconciling: bool,
    exhausting_at: Option<i64>,
    ending: bool,
    commits: u64,
    accepted: Vec<Acceptance>,
    /// Copies of reports that come when everything else is over.
    late: Vec<(i64, usize, Rc<Report>)>,
}

impl World {
    pub fn new(script: Script) -> Self {
        let setup = &script.setup;
        let snapshots: Vec<_> =
            (1..).zip(&setup.hosts).map(|(number, cards)| fleet::host(number, *cards)).collect();
        let hosts = (0..)
            .zip(&snapshots)
            .map(|(number, host)| Host::new(host.id.clone(), number, setup.seed, setup.report_ms));
        let hosts: Vec<Host> = hosts.collect();
        let mut world = Self {
            now_ms: 0,
            control_plane: ControlPlane::new(setup, snapshots),
            down_until: 0,
            wires: vec![Wire::default(); hosts.len()],
            hosts,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            queued: 0,
            reconciling: false,
            exhausting_at: None,
            ending: false,
            commits: 0,
            accepted: Vec::new(),
            late: Vec::new(),
            script,
        };
        for number in 0..world.script.happenings.len() {
            world.push(world.script.happenings[number].at, Event::Happening(number));
        }
        for host in 0..world.hosts.len() {
            world.push(i64::try_from(host).expect("few hosts") * 137, Event::Report(host));
        }
        world
    }

    /// To the end, or panics with what does not hold.
    pub fn run(mut self) -> Summary {
        let ends_at = self.script.setup.ends_at;
        while let Some(Reverse((at, number))) = self.queue.pop() {
            let event = self.events.remove(&number).expect("a queued event");
            if at > ends_at && !self.ending {
                self.end_everything(ends_at);
            }
            assert!(at < LAST_MS, "a world that does not come to rest");
            self.now_ms = self.now_ms.max(at);
            self.control_plane.time_ms = self.now_ms;
            self.handle(event);
            self.follow_up();
            if self.ending && self.at_rest() {
                break;
            }
        }
        self.finish()
    }

    fn push(&mut self, at: i64, event: Event) {
        self.queued += 1;
        self.queue.push(Reverse((at, self.queued)));
        self.events.insert(self.queued, event);
    }

    fn up(&self) -> bool {
        self.now_ms >= self.down_until
    }

    fn hears(&self, host: usize) -> bool {
        let wire = self.wires[host];
        self.up() && self.now_ms >= wire.up_cut_until && self.now_ms >= wire.down_cut_until
    }

    /// Every tenant ends what it rents.
    fn end_everything(&mut self, at: i64) {
        self.ending = true;
        self.now_ms = self.now_ms.max(at).max(self.down_until);
        self.control_plane.time_ms = self.now_ms;
        for id in self.control_plane.order.clone() {
            self.accept(&id, false, 0);
        }
    }

    fn at_rest(&self) -> bool {
        self.control_plane.quiet()
            && self.hosts.iter().all(Host::idle)
            && !self
                .events
                .values()
                .any(|event| matches!(event, Event::Deliver { .. } | Event::Commit { .. }))
    }

    fn handle(&mut self, event: Event) {
        let now = self.now_ms;
        match event {
            Event::Happening(number) => self.happen(self.script.happenings[number].what),
            Event::Commit { stop, id, accepted } => self.commit(stop, &id, accepted),
            Event::Report(host) => self.send_report(host, true),
            Event::Deliver { host, report, life } => self.deliver(host, &report, life),
            Event::Acknowledge { host, life, through } => {
                if self.hosts[host].life == life && self.hosts[host].acts() {
                    self.hosts[host].acknowledged(through);
                }
            }
            Event::Pull(host) => self.pull(host),
            Event::Reconcile => {
                self.reconciling = false;
                if self.up() {
                    self.control_plane.reconcile();
                }
            }
            Event::Exhaust => {
                self.exhausting_at = None;
                if self.up() {
                    self.control_plane.exhaust();
                }
            }
            Event::Wake(host) => self.hosts[host].wake(now),
            Event::AgentUp(host) => self.hosts[host].start_agent(now),
            Event::PowerOn(host) => self.hosts[host].power_on(now),
        }
    }

    /// What every commit may set off: workers that wake, hosts that hear of news.
    fn follow_up(&mut self) {
        self.commits += 1;
        if self.commits.is_multiple_of(AUDIT_EVERY) {
            audit::ledgers(&self.control_plane);
        }
        let now = self.now_ms;
        let mut fate = Choices::fate(self.script.setup.seed, &[2, self.commits]);
        for id in std::mem::take(&mut self.control_plane.news) {
            let host = self.place_of(&id);
            self.push(now + fate.between(20, 800), Event::Pull(host));
        }
        let moving = |state| {
            !matches!(
                state,
                State::Running
                    | State::Degraded
                    | State::Stopped
                    | State::Suspended
                    | State::Failed
                    | State::Terminated
            )
        };
        if !self.reconciling
            && self.control_plane.rentals.values().any(|rental| moving(rental.instance.state))
        {
            self.reconciling = true;
            let every = (self.script.setup.report_ms / 3).max(self.patience());
            let at = (now + fate.between(50, every)).max(self.down_until);
            self.push(at, Event::Reconcile);
        }
        if let Some(until) = self.control_plane.next_exhaustion() {
            let due = (until.as_micros() - EPOCH) / 1000 - self.control_plane.wall_off_ms;
            let at = (due + fate.between(1, 2_000)).max(now + 500).max(self.down_until);
            if at < LAST_MS && self.exhausting_at.is_none_or(|known| at + 2_000 < known) {
                self.exhausting_at = Some(at);
                self.push(at, Event::Exhaust);
            }
        }
    }

    /// Long after the end only hosts that were cut off for weeks are waited for: nothing is looked at more often than this.
    fn patience(&self) -> i64 {
        let over = self.ending && self.now_ms > self.script.setup.ends_at + 3_600_000;
        if over { DAY_MS / 4 } else { 0 }
    }

    fn place_of(&self, id: &HostId) -> usize {
        self.hosts.iter().position(|host| host.id == *id).expect("a known host")
    }

    fn pick(&self, pick: usize) -> Option<InstanceId> {
        let order = &self.control_plane.order;
        (!order.is_empty()).then(|| order[pick % order.len()].clone())
    }

    fn happen(&mut self, what: What) {
        let now = self.now_ms;
        match what {
            What::AgentDown { host, ms } => {
                self.hosts[host].stop_agent(now);
                self.push(now + ms, Event::AgentUp(host));
            }
            What::Reboot { host, ms } => {
                self.hosts[host].power_off(now);
                self.push(now + ms, Event::PowerOn(host));
            }
            What::Suspend { host, ms } => {
                self.hosts[host].suspend(now);
                self.push(now + ms, Event::Wake(host));
            }
            What::Cut { host, up, down, ms } => {
                let wire = &mut self.wires[host];
                wire.up_cut_until = wire.up_cut_until.max(if up { now + ms } else { 0 });
                wire.down_cut_until = wire.down_cut_until.max(if down { now + ms } else { 0 });
            }
            What::Slow { host, delay_ms, ms } => {
                (self.wires[host].slow_until, self.wires[host].slow_ms) = (now + ms, delay_ms);
                self.control_plane.misled = true;
            }
            What::ControlPlaneDown { ms } => self.down_until = self.down_until.max(now + ms),
            What::WallStep { ms } => {
                self.control_plane.wall_off_ms += ms;
                self.control_plane.misled |= ms < 0;
            }
            What::Degrade { pick, ms } => {
                let Some(id) = self.pick(pick) else { return };
                let host = self.control_plane.rentals[&id].host_id.clone();
                if let Some(host) = host.map(|host| self.place_of(&host)) {
                    self.hosts[host].trouble(&id, ms, now);
                    self.send_report(host, false);
                }
            }
            _ if self.up() => self.request(what),
            // Nobody answers.
            _ => {}
        }
    }

    /// What a tenant or an operator asks of the control plane.
    fn request(&mut self, what: What) {
        let control_plane = &mut self.control_plane;
        match what {
            What::Create { tenant, offer } => control_plane.create(tenant, offer),
            What::Credit { tenant, kind, amount, lasts_ms } => {
                control_plane.credit(tenant, kind, amount, lasts_ms);
            }
            What::Price { offer, hourly, in_ms } => control_plane.price(offer, hourly, in_ms),
            What::Settle => control_plane.settle_all(),
            What::Start { pick } | What::Restart { pick } => {
                let Some(id) = self.pick(pick) else { return };
                if matches!(what, What::Start { .. }) {
                    self.control_plane.start(&id);
                } else {
                    self.witness(&id);
                    self.control_plane.restart(&id);
                }
            }
            What::Stop { pick, lag_ms } | What::Terminate { pick, lag_ms } => {
                if let Some(id) = self.pick(pick) {
                    self.accept(&id, matches!(what, What::Stop { .. }), lag_ms);
                }
            }
            _ => unreachable!("a fault is no request"),
        }
    }

    /// Reads the clock for an end; its commit may come later.
    fn accept(&mut self, id: &InstanceId, stop: bool, lag_ms: i64) {
        let accepted = self.control_plane.now();
        if lag_ms == 0 {
            self.commit(stop, id, accepted);
        } else {
            self.push(self.now_ms + lag_ms, Event::Commit { stop, id: id.clone(), accepted });
        }
    }

    fn commit(&mut self, stop: bool, id: &InstanceId, accepted: Timestamp) {
        self.witness(id);
        if stop {
            self.control_plane.stop(id, accepted);
        } else {
            self.control_plane.terminate(id, accepted);
        }
    }

    /// Notes what the host's clock really shows as an end is committed: nothing after it may bill.
    fn witness(&mut self, id: &InstanceId) {
        if self.control_plane.open_segment_of(id).is_none() {
            return;
        }
        let Some(host) = self.control_plane.rentals[id].host_id.clone() else { return };
        let host = &self.hosts[self.place_of(&host)];
        // Nobody can know how far behind the clock of a host is that sleeps, or that was not heard since it woke.
        if host.powered && !host.asleep() && host.woke.is_none() {
            let (boot_id, mono_ms) = (host.boot_id(), host.mono(self.now_ms));
            self.accepted.push(Acceptance { id: id.clone(), boot_id, mono_ms, slept: host.slept() });
        }
    }

    fn send_report(&mut self, place: usize, periodic: bool) {
        let now = self.now_ms;
        let setup = &self.script.setup;
        let (seed, period) = (setup.seed, setup.report_ms);
        if periodic {
            // One that has nothing to say any more, or that nobody hears for long, is not asked again and again.
            let healed =
                self.wires[place].up_cut_until.max(self.wires[place].down_cut_until).max(self.down_until);
            let next = match self.patience() {
                _ if healed > now + DAY_MS => healed,
                patience if self.hosts[place].idle() => now + period.max(patience),
                _ => now + period,
            };
            self.push(next, Event::Report(place));
            if place == 0 && self.up() {
                self.control_plane.sweep();
            }
        }
        if !self.hosts[place].acts() {
            return;
        }
        let report = Rc::new(self.hosts[place].report(now));
        let boot = u64::try_from(self.hosts[place].boot_id().as_str().len()).expect("short");
        let mut fate = Choices::fate(seed, &[3, u64::try_from(place).expect("few"), boot, report.seq.get()]);
        let wire = self.wires[place];
        if now < wire.up_cut_until || fate.percent(4) {
            return;
        }
        let slow = if now < wire.slow_until { wire.slow_ms } else { 0 };
        let delay =
            slow + if fate.percent(85) { fate.between(1, 400) } else { fate.between(400, period * 2) };
        let life = Some(self.hosts[place].life);
        self.push(now + delay, Event::Deliver { host: place, report: Rc::clone(&report), life });
        if fate.percent(12) {
            for _ in 0..fate.between(1, 5) {
                let after = now + fate.between(1, period * 6);
                self.push(after, Event::Deliver { host: place, report: Rc::clone(&report), life: None });
            }
        }
        if fate.percent(2) {
            self.late.push((fate.between(DAY_MS, 34 * DAY_MS), place, report));
        }
    }

    fn deliver(&mut self, host: usize, report: &Report, life: Option<u32>) {
        if !self.up() {
            return;
        }
        let id = self.hosts[host].id.clone();
        let through = self.control_plane.report(&id, report);
        let woke = self.hosts[host].woke.filter(|_| report.boot_id == self.hosts[host].boot_id());
        if woke.is_some_and(|woke| report.mono_ms.get() >= woke) {
            self.hosts[host].woke = None;
        }
        let Some(life) = life else { return };
        if self.now_ms >= self.wires[host].down_cut_until {
            self.push(self.now_ms + 5, Event::Acknowledge { host, life, through });
        }
        if self.hears(host) {
            self.push(self.now_ms + 10, Event::Pull(host));
        }
    }

    fn pull(&mut self, host: usize) {
        if !self.hears(host) || !self.hosts[host].acts() {
            return;
        }
        let (revision, wanted) = self.control_plane.desired(&self.hosts[host].id);
        if self.hosts[host].obey(revision, &wanted, self.now_ms) {
            self.send_report(host, false);
        }
    }

    fn finish(mut self) -> Summary {
        // Everything that was proven is settled, every credit that expires has expired, and what comes now comes for the second time.
        self.now_ms = self.now_ms.max(2 * self.script.setup.ends_at) + DAY_MS;
        self.control_plane.time_ms = self.now_ms;
        self.control_plane.settle_all();
        audit::ledgers(&self.control_plane);
        let before = verdict::digest(&self.control_plane);
        let mut late = std::mem::take(&mut self.late);
        late.sort_by_key(|(after, ..)| *after);
        for (after, host, report) in late {
            // Copies up to 35 days after the end of what they prove.
            self.control_plane.time_ms = self.now_ms.max(self.script.setup.ends_at + after);
            let id = self.hosts[host].id.clone();
            self.control_plane.report(&id, &report);
            self.control_plane.settle_all();
        }
        let after = verdict::digest(&self.control_plane);
        let changed = after.iter().find(|line| !before.contains(line));
        assert_eq!((changed, after.len()), (None, before.len()), "M7: late copies changed the ledger");
        let truths = self.hosts.iter().flat_map(|host| &host.truths).collect::<Vec<_>>();
        verdict::judge(&self.control_plane, &truths, &self.accepted, &self.script)
    }
}
