//! When certificates are made again: at every start of the agent (after a reboot, another driver, a repair), when the control plane
//! orders it, after a hardware Xid, when the number of active NVLinks changes, and once a pool that was in the way has ended. What a pool
//! is about to use is looked at besides, by its worker.

use std::sync::Arc;
use std::time::Duration;

use tarn_protocol::control::GpuEvent;
use tarn_protocol::ids::GpuUuid;

use super::circumstances::Circumstances;
use super::pair::Occasion;
use super::schedule;
use crate::card_use::Pair;
use crate::instance::pool::IDLE_USED_MAX;
use crate::instance::worker::Surroundings;
use crate::nvml::card::Card;
use crate::nvml::link_watch;
use crate::xid::{Action, action};

const PROBES_TOGETHER_MAX: usize = 4;
const SAMPLE_WITHIN: Duration = Duration::from_secs(2);

/// Probes `pairs` in the background.
pub fn send(around: &Arc<Surroundings>, pairs: Vec<Pair>, occasion: Occasion) {
    if pairs.is_empty() {
        return;
    }
    let around = Arc::clone(around);
    std::thread::spawn(move || probe_all(&around, &pairs, occasion));
}

/// Every ordered pair of idle cards: a card at work is not disturbed.
pub fn at_start(around: &Arc<Surroundings>) {
    let around = Arc::clone(around);
    std::thread::spawn(move || {
        let free: Vec<GpuUuid> =
            around.cards.cards().filter(|card| idle(card)).map(|card| card.uuid().clone()).collect();
        probe_all(&around, &schedule::ordered_pairs(&free), Occasion::Start);
    });
}

/// A fault of the card or its links puts every certificate of the card in doubt; a tenant's own does not.
pub fn after_xid(around: &Arc<Surroundings>, uuid: &GpuUuid, xid: u32) {
    match action(xid) {
        Action::Tenant | Action::Watch | Action::CardLost | Action::Retire => {}
        Action::NoNewPlacement
        | Action::RestartInstance
        | Action::StopAndDrain
        | Action::DrainAndRetest
        | Action::DrainPools
        | Action::Remeasure => send(around, pairs_of(around, uuid), Occasion::Xid),
    }
}

/// Watches every card's NVLinks for as long as the process lives.
pub fn after_link_events(around: &Arc<Surroundings>) -> std::io::Result<()> {
    let heard = Arc::clone(around);
    link_watch::watch(around.cards.nvml(), around.cards.uuids(), move |uuid, before, now| {
        heard.board.event(GpuEvent {
            uuid: uuid.clone(),
            mono_ms: heard.clock.now(),
            xid: 0,
            detail: format!("nvlink_changed: {before} active links before, {now} now"),
            escape: None,
        });
        send(&heard, pairs_of(&heard, uuid), Occasion::LinkEvent);
    })
}

fn pairs_of(around: &Surroundings, uuid: &GpuUuid) -> Vec<Pair> {
    let pairs = schedule::ordered_pairs(&around.cards.uuids());
    pairs.into_iter().filter(|(from, to)| from == uuid || to == uuid).collect()
}

fn idle(card: &Card) -> bool {
    card.sample(SAMPLE_WITHIN).is_ok_and(|sample| sample.used_bytes <= IDLE_USED_MAX)
}

/// Probes pairs in rounds and posts each result as it comes.
fn probe_all(around: &Surroundings, pairs: &[Pair], occasion: Occasion) {
    for round in schedule::rounds(pairs, PROBES_TOGETHER_MAX) {
        std::thread::scope(|scope| {
            for (from, to) in &round {
                scope.spawn(move || {
                    let known = Circumstances::of(&around.cards, from, to);
                    let probe = || around.prober.probe(from, to, known, occasion);
                    let probed = around.card_use.probing(from, to, probe);
                    if let Some(probe) = probed {
                        around.board.probe(probe);
                    } else {
                        tracing::info!(%from, %to, "not probed: a pool has one of the cards");
                    }
                });
            }
        });
    }
}
