//! What should have been billed: worked out from what went into the control plane and from what really ran, by rules that fit on a
//! page and share no code with billing.
//!
//! A run bills from its first ready evidence until the earliest end: an accepted stop or termination, the end of the money, or the last
//! evidence before a report that shows it degraded or over. Within that window every millisecond counts that the command really ran and
//! the agent could prove. Each price in force cuts the window; each part is floored to seconds once.

use std::collections::BTreeMap;

use tarn_protocol::control::UsageEvidence;
use tarn_protocol::ids::{GpuUuid, HostId, InstanceId};
use tarn_protocol::units::{BootId, Generation, Sequence, Timestamp};

use crate::facts::{Fact, Settled, Shown};
use crate::host::Truth;

/// A lag of a host's clock behind its anchor that the delay of reports explains.
const LAG_MS: i64 = 5_000;

/// An interval in which a run bills, on the clock of one boot; `c0` is the control plane's instant of `start`, in microseconds.
#[derive(Debug, Clone)]
struct Window {
    generation: Generation,
    boot_id: BootId,
    start: i64,
    c0: i64,
    end: Option<i64>,
}

impl Window {
    /// The boot's clock at an instant of the control plane.
    fn mono_at(&self, at: Timestamp) -> i64 {
        self.start + ((at.as_micros() - self.c0).max(0)) / 1000
    }
}

#[derive(Debug, Default)]
struct Life {
    offer: usize,
    accepted: i64,
    generation: Option<Generation>,
    primaries: BTreeMap<Generation, GpuUuid>,
    wanted: bool,
    over: Option<Generation>,
    /// Shown degraded or billed before in this generation: bills again only from the report that shows it well.
    broken: bool,
    open: Option<Window>,
    windows: Vec<Window>,
}

#[derive(Debug, Clone)]
#[expect(clippy::struct_field_names, reason = "a boot's id is its `boot_id` everywhere")]
struct Boot {
    boot_id: BootId,
    seq: Sequence,
    at: Timestamp,
    mono_ms: i64,
}

/// One line of the bill that there should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    pub instance_id: InstanceId,
    pub generation: Generation,
    /// First millisecond, on the boot's clock.
    pub from_ms: i64,
    pub price_version: i64,
    pub primary: GpuUuid,
    pub seconds: i64,
}

#[derive(Debug, Default)]
pub struct Oracle {
    lives: BTreeMap<InstanceId, Life>,
    boots: BTreeMap<HostId, Vec<Boot>>,
    proven: BTreeMap<(InstanceId, Generation, BootId), i64>,
    /// Per offer, versions from 1 on: hourly price and first instant.
    prices: BTreeMap<usize, Vec<(i64, i64)>>,
}

impl Oracle {
    pub fn of(facts: &[Fact]) -> Self {
        let mut oracle = Self::default();
        for fact in facts {
            oracle.take(fact);
        }
        oracle
    }

    fn take(&mut self, fact: &Fact) {
        match fact {
            Fact::Priced { offer, hourly, from } => {
                self.prices.entry(*offer).or_default().push((*hourly, from.as_micros()));
            }
            Fact::Leased { instance_id, generation, at, cards } => {
                let life = self.lives.entry(instance_id.clone()).or_default();
                life.generation = Some(*generation);
                life.primaries.insert(*generation, cards[0].clone());
                (life.accepted, life.broken) = (life.accepted.max(at.as_micros()), false);
            }
            Fact::Started { instance_id, offer, at, .. } => {
                let life = self.lives.entry(instance_id.clone()).or_default();
                (life.offer, life.wanted) = (*offer, true);
                life.accepted = life.accepted.max(at.as_micros());
            }
            Fact::Ended { instance_id, at, settled } => {
                self.lives.get_mut(instance_id).expect("it was started").wanted = false;
                self.end(instance_id, *at, *settled);
            }
            Fact::Heard { host_id, boot_id, seq, mono_ms, at, shown, usage, settled } => {
                let mono_ms = i64::try_from(*mono_ms).expect("a clock");
                let boot = Boot { boot_id: boot_id.clone(), seq: *seq, at: *at, mono_ms };
                let fresh = self.hear(host_id, boot.clone());
                let settled =
                    |id: &InstanceId| settled.iter().find(|(of, _)| of == id).map(|(_, settled)| *settled);
                if fresh {
                    self.see(shown, true, &boot, &settled);
                }
                self.prove(usage);
                if fresh {
                    self.see(shown, false, &boot, &settled);
                }
            }
        }
    }

    /// Whether a report is news: of the newest boot, and later in it than all before.
    fn hear(&mut self, host: &HostId, boot: Boot) -> bool {
        let boots = self.boots.entry(host.clone()).or_default();
        let place = boots.iter().position(|known| known.boot_id == boot.boot_id);
        match place {
            None => boots.push(boot),
            Some(place) if place + 1 == boots.len() && boot.seq > boots[place].seq => boots[place] = boot,
            Some(_) => return false,
        }
        true
    }

    fn prove(&mut self, usage: &[UsageEvidence]) {
        for piece in usage {
            let run = (piece.instance_id.clone(), piece.generation, piece.boot_id.clone());
            let to = i64::try_from(piece.to_mono_ms.get()).expect("a clock");
            let known = self.proven.entry(run).or_insert(to);
            *known = to.max(*known);
        }
    }

    fn see(
        &mut self,
        shown: &[(InstanceId, Generation, Shown)],
        running: bool,
        boot: &Boot,
        settled: &dyn Fn(&InstanceId) -> Option<Settled>,
    ) {
        for (id, generation, shown) in shown {
            let Some(life) = self.lives.get_mut(id).filter(|life| life.generation == Some(*generation))
            else {
                continue;
            };
            match shown {
                Shown::Running { ready }
                    if running && life.wanted && life.over != Some(*generation) && life.open.is_none() =>
                {
                    life.open(*generation, boot, i64::try_from(*ready).expect("a clock"));
                }
                Shown::Degraded if !running && life.wanted => {
                    life.broken = true;
                    self.break_off(id, boot, settled(id));
                }
                Shown::Ended if !running => {
                    life.over = Some(*generation);
                    self.break_off(id, boot, settled(id));
                }
                _ => {}
            }
        }
    }

    /// An accepted end.
    fn end(&mut self, id: &InstanceId, at: Timestamp, settled: Option<Settled>) {
        let life = self.lives.get_mut(id).expect("it was started");
        let Some(window) = life.open.take() else { return };
        let boots = self.boots.values().flatten();
        let heard = boots.into_iter().find(|boot| boot.boot_id == window.boot_id).expect("it was heard of");
        // A host that slept is behind: nothing after the acceptance counts as before it.
        let lag = window.mono_at(heard.at) - heard.mono_ms;
        let end = window.mono_at(at) - if lag > LAG_MS { lag } else { 0 };
        self.close(id, window, end, settled);
    }

    /// An end that a report shows: where the evidence ends.
    fn break_off(&mut self, id: &InstanceId, boot: &Boot, settled: Option<Settled>) {
        let life = self.lives.get_mut(id).expect("it was started");
        let Some(window) = life.open.take() else { return };
        life.broken = true;
        let run = (id.clone(), window.generation, window.boot_id.clone());
        let proven = self.proven.get(&run).copied().unwrap_or(window.start);
        let end = proven.min(window.mono_at(boot.at));
        self.close(id, window, end, settled);
    }

    /// No end is before what is settled.
    fn close(&mut self, id: &InstanceId, window: Window, end: i64, settled: Option<Settled>) {
        let parts = self.parts(self.lives[id].offer, &window);
        // Nor before the price that the open segment began with.
        let settled = settled.and_then(|settled| {
            let (from, _) = parts.iter().find(|(_, version)| *version == settled.price_version)?;
            Some(from + settled.seconds * 1000)
        });
        let end = end.max(window.start).max(settled.unwrap_or(0));
        let life = self.lives.get_mut(id).expect("it was started");
        life.windows.push(Window { end: Some(end), ..window });
    }

    /// Where each price in force begins within a window, with its version: whole milliseconds after the one before.
    fn parts(&self, offer: usize, window: &Window) -> Vec<(i64, i64)> {
        let mut parts: Vec<(i64, i64)> = Vec::new();
        let (mut last, mut since) = (window.start, window.c0);
        for (version, (_, from)) in (1..).zip(&self.prices[&offer]) {
            if *from <= window.c0 {
                parts = vec![(window.start, version)];
            } else {
                (last, since) = (last + (from - since) / 1000, *from);
                parts.push((last, version));
            }
        }
        parts
    }

    /// The bill, given what really ran; parts of less than a second are not listed.
    pub fn lines(&self, truths: &[&Truth]) -> Vec<Line> {
        let mut lines = Vec::new();
        for (id, life) in &self.lives {
            assert!(life.open.is_none(), "{id} never ended");
            for window in &life.windows {
                let ran = truths.iter().find(|truth| {
                    truth.instance_id == *id
                        && truth.generation == window.generation
                        && truth.boot_id == window.boot_id
                });
                let ran = ran.expect("only what ran is billed");
                let claimable = i64::try_from(ran.claimable.expect("it ended")).expect("a clock");
                let ready = i64::try_from(ran.ready).expect("a clock");
                let end = window.end.expect("closed").min(claimable);
                let parts = self.parts(life.offer, window);
                let ends = parts.iter().skip(1).map(|(from, _)| *from).chain([i64::MAX]);
                for ((from, version), to) in parts.iter().zip(ends) {
                    let seconds = (to.min(end) - (*from).max(ready)).max(0) / 1000;
                    if seconds > 0 {
                        lines.push(Line {
                            instance_id: id.clone(),
                            generation: window.generation,
                            from_ms: *from,
                            price_version: *version,
                            primary: life.primaries[&window.generation].clone(),
                            seconds,
                        });
                    }
                }
            }
        }
        lines.sort();
        lines
    }
}

impl Life {
    fn open(&mut self, generation: Generation, boot: &Boot, ready: i64) {
        let c0 = boot.at.as_micros() - (boot.mono_ms - ready) * 1000;
        let bound = if self.broken { boot.at.as_micros() } else { self.accepted };
        let late_ms = ((bound - c0).max(0) + 999) / 1000;
        self.open = Some(Window {
            generation,
            boot_id: boot.boot_id.clone(),
            start: ready + late_ms,
            c0: c0 + late_ms * 1000,
            end: None,
        });
    }
}
