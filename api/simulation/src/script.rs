//! What happens in a world: a setup and a list of happenings, all of it drawn from one seed. A happening can be left out and the rest
//! stays what it was, so that a failing script can be shrunk.

use tarn_billing::grant::GrantKind;

use crate::choices::Choices;

/// One world's constants. Times are milliseconds of true time.
#[derive(Debug, Clone)]
pub struct Setup {
    pub seed: u64,
    /// Cards per host.
    pub hosts: Vec<u8>,
    pub tenants: usize,
    /// Cash that each tenant begins with, in micros: with much of it money never ends.
    pub cash: i64,
    /// Cards and first hourly price of each offer.
    pub offers: Vec<(usize, i64)>,
    pub report_ms: i64,
    pub ends_at: i64,
}

#[derive(Debug, Clone)]
pub struct Happening {
    pub at: i64,
    pub what: What,
}

/// `pick` chooses among the instances that there are by then, `lag_ms` lies between the reading of the clock and the commit.
#[derive(Debug, Clone, Copy)]
pub enum What {
    Create {
        tenant: usize,
        offer: usize,
    },
    Start {
        pick: usize,
    },
    Restart {
        pick: usize,
    },
    Stop {
        pick: usize,
        lag_ms: i64,
    },
    Terminate {
        pick: usize,
        lag_ms: i64,
    },
    Credit {
        tenant: usize,
        kind: GrantKind,
        amount: i64,
        lasts_ms: Option<i64>,
    },
    Price {
        offer: usize,
        hourly: i64,
        in_ms: i64,
    },
    Settle,
    /// The pool of an instance is in trouble that is ours.
    Degrade {
        pick: usize,
        ms: i64,
    },
    AgentDown {
        host: usize,
        ms: i64,
    },
    Reboot {
        host: usize,
        ms: i64,
    },
    Suspend {
        host: usize,
        ms: i64,
    },
    Cut {
        host: usize,
        up: bool,
        down: bool,
        ms: i64,
    },
    Slow {
        host: usize,
        delay_ms: i64,
        ms: i64,
    },
    ControlPlaneDown {
        ms: i64,
    },
    /// The control plane's wall clock is set: an NTP step, a leap second, a wrong zone put right.
    WallStep {
        ms: i64,
    },
}

#[derive(Debug, Clone)]
pub struct Script {
    pub setup: Setup,
    pub happenings: Vec<Happening>,
}

/// Hourly prices: round, prime, tiny, free, and some that end ten yuan within the hour.
const PRICES: [i64; 8] = [2_400_000, 7_777_777, 1, 3_599, 987_654, 0, 9_000_000, 600_000];
/// Of which the trial's ten yuan pay a little more than an hour, or a little less than four.
const DEAR: [i64; 4] = [9_999_999, 9_000_000, 5_000_003, 2_700_000];
const DAY_MS: i64 = 24 * 3_600_000;

impl Script {
    pub fn of(seed: u64) -> Self {
        let mut choices = Choices::of(seed);
        let setup = setup(seed, &mut choices);
        let mut happenings = Vec::new();
        let mut instances = 0;
        for _ in 0..choices.between(1, 5) {
            instances += 1;
            happenings.push(Happening {
                at: choices.between(0, setup.ends_at / 2),
                what: create(&mut choices, &setup),
            });
        }
        // Equal starts at one instant race for the same money and cards.
        if choices.percent(30) {
            let (at, what) = (choices.between(0, setup.ends_at / 2), create(&mut choices, &setup));
            for _ in 0..choices.between(2, 6) {
                instances += 1;
                happenings.push(Happening { at, what });
            }
        }
        for _ in 0..instances {
            ends(&mut choices, &setup, &mut happenings);
        }
        money(&mut choices, &setup, &mut happenings);
        faults(&mut choices, &setup, &mut happenings);
        happenings.sort_by_key(|happening| happening.at);
        Self { setup, happenings }
    }

    /// The same with only these happenings.
    pub fn keep(&self, kept: &[usize]) -> Self {
        let happenings = kept.iter().filter_map(|number| self.happenings.get(*number).cloned());
        Self { setup: self.setup.clone(), happenings: happenings.collect() }
    }
}

fn setup(seed: u64, choices: &mut Choices) -> Setup {
    // In a third of all worlds there is the trial alone, and an hour and a bit to spend it in.
    let poor = choices.percent(33);
    let report_ms = if poor { 60_000 } else { choices.one_of(&[5_000, 20_000, 60_000]) };
    let prices: &[i64] = if poor { &DEAR } else { &PRICES };
    let offers = (0..3).map(|_| (choices.one_of(&[1, 1, 2, 3, 4, 8]), choices.one_of(prices))).collect();
    Setup {
        seed,
        hosts: (0..choices.between(1, 4)).map(|_| choices.one_of(&[2, 4, 8])).collect(),
        tenants: choices.index(3) + 1,
        cash: if choices.percent(50) && !poor { 1_000_000_000_000 } else { 0 },
        offers,
        report_ms,
        ends_at: report_ms * if poor { choices.between(75, 110) } else { choices.between(20, 70) },
    }
}

fn create(choices: &mut Choices, setup: &Setup) -> What {
    What::Create { tenant: choices.index(setup.tenants), offer: choices.index(setup.offers.len()) }
}

/// Ends of what runs, some of them racing, and what follows them.
fn ends(choices: &mut Choices, setup: &Setup, happenings: &mut Vec<Happening>) {
    let pick = choices.index(64);
    let mut at = choices.between(0, setup.ends_at);
    let lag_ms = |choices: &mut Choices| if choices.percent(20) { choices.between(0, 3_000) } else { 0 };
    let stop = What::Stop { pick, lag_ms: lag_ms(choices) };
    let terminate = What::Terminate { pick, lag_ms: lag_ms(choices) };
    match choices.between(0, 8) {
        0 | 1 => happenings.push(Happening { at, what: stop }),
        2 => happenings.push(Happening { at, what: terminate }),
        3 => happenings.extend([stop, terminate, What::Settle].map(|what| Happening { at, what })),
        4 => happenings.push(Happening { at, what: What::Restart { pick } }),
        5 | 6 => {
            happenings.push(Happening { at, what: stop });
            at += choices.between(0, setup.report_ms * 8);
            happenings.push(Happening { at, what: What::Start { pick } });
        }
        _ => happenings.push(Happening {
            at,
            what: What::Degrade { pick, ms: choices.between(1, setup.report_ms * 6) },
        }),
    }
}

fn money(choices: &mut Choices, setup: &Setup, happenings: &mut Vec<Happening>) {
    for _ in 0..choices.between(0, 5) {
        let at = choices.between(0, setup.ends_at);
        let tenant = choices.index(setup.tenants);
        let kind = choices.one_of(&[GrantKind::Promo, GrantKind::Sla, GrantKind::Cash]);
        let expires = kind != GrantKind::Cash && choices.percent(80);
        let lasts_ms = expires.then(|| choices.between(1, setup.ends_at));
        let amount = choices.one_of(&[1, 500_000, 2_400_000, 10_000_000, 50_000_000]);
        happenings.push(Happening { at, what: What::Credit { tenant, kind, amount, lasts_ms } });
    }
    for _ in 0..choices.between(0, 4) {
        let at = choices.between(0, setup.ends_at);
        let offer = choices.index(setup.offers.len());
        let in_ms = if choices.percent(50) { 0 } else { choices.between(0, setup.ends_at / 2) };
        let hourly = choices.one_of(&PRICES) * choices.one_of(&[1, 1, 7]);
        happenings.push(Happening { at, what: What::Price { offer, hourly, in_ms } });
    }
    for _ in 0..choices.between(2, 16) {
        happenings.push(Happening { at: choices.between(0, setup.ends_at), what: What::Settle });
    }
}

fn faults(choices: &mut Choices, setup: &Setup, happenings: &mut Vec<Happening>) {
    for _ in 0..choices.between(0, 6) {
        let at = choices.between(0, setup.ends_at);
        let host = choices.index(setup.hosts.len());
        let ms = choices.between(100, setup.report_ms * 15);
        let what = match choices.between(0, 20) {
            0..=3 => What::AgentDown { host, ms },
            4 | 5 => What::Reboot { host, ms },
            6 | 7 => What::Suspend { host, ms },
            8..=12 => cut(choices, host, ms),
            13 | 14 => What::Slow { host, delay_ms: choices.between(1_000, 60_000), ms },
            15 | 16 => What::ControlPlaneDown { ms: if choices.percent(30) { 3_600_000 } else { ms } },
            _ => wall_step(choices, happenings),
        };
        happenings.push(Happening { at, what });
    }
}

/// Back by any amount, and ahead by a leap second. Ahead by more only where no price begins: what runs is then an hour behind our clock,
/// and a price would begin for it when its own clock is there.
fn wall_step(choices: &mut Choices, happenings: &[Happening]) -> What {
    let priced = happenings.iter().any(|happening| matches!(happening.what, What::Price { .. }));
    let ms = choices.one_of(&[-1_000, -3_600_000, -250, -60_000, 1_000, 3_600_000]);
    What::WallStep { ms: if priced { ms.min(1_000) } else { ms } }
}

/// One way, both ways, or for weeks.
fn cut(choices: &mut Choices, host: usize, ms: i64) -> What {
    let (up, down) = choices.one_of(&[(true, true), (true, false), (false, true)]);
    if choices.percent(8) {
        return What::Cut { host, up: true, down: true, ms: choices.between(DAY_MS, 34 * DAY_MS) };
    }
    What::Cut { host, up, down, ms }
}
