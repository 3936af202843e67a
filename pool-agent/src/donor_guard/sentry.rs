//! Looks at one card again and again and says what is to be done: who escaped, whom to end, what to tell. Pure: samples and identities in,
//! acts out.

use std::collections::BTreeMap;

use tarn_protocol::control::{Escape, EscapeAction};
use tarn_protocol::ids::{GpuUuid, InstanceId};
use tarn_protocol::units::{Bytes, MonoMillis};

use super::owner::Identity;
use super::roster::Seat;
use crate::process_mark::ProcessMark;

/// What is done to a tenant's process on a card that the tenant did not rent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum EscapePolicy {
    /// Ended at first sight.
    Stop,
    /// Left alone and told, from first to last sight, so that it can be charged.
    Bill,
}

/// Looks after which a killed process that is still there is told again: it hangs in the driver.
const SURVIVED_LOOKS: u32 = 6;
/// Looks between two tellings of a process that is charged.
const BILLED_LOOKS: u32 = 120;

/// One process that was seen on the card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    pub identity: Identity,
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    Kill(ProcessMark),
    Tell(Box<Escape>),
}

/// The memory of one card's watch.
#[derive(Debug)]
pub struct Sentry {
    card: GpuUuid,
    policy: EscapePolicy,
    escapes: BTreeMap<ProcessMark, Escape>,
}

impl Sentry {
    pub fn new(card: GpuUuid, policy: EscapePolicy) -> Self {
        Self { card, policy, escapes: BTreeMap::new() }
    }

    /// One look: everything on the card but the agent's own processes.
    pub fn look(
        &mut self,
        seen: &[Sighting],
        seats: &BTreeMap<InstanceId, Seat>,
        now: MonoMillis,
    ) -> Vec<Act> {
        let mut acts = Vec::new();
        self.leave_behind(seen, &mut acts);
        for sighting in seen {
            if self.escaped(sighting, seats) {
                self.note(sighting, now, &mut acts);
            }
        }
        acts
    }

    /// A tenant's process belongs on its primary and nowhere else. One of nobody's, or of an instance that this agent has no journal of,
    /// matters where a pool has lent the card: what runs without a journal is never ended for that alone.
    fn escaped(&self, sighting: &Sighting, seats: &BTreeMap<InstanceId, Seat>) -> bool {
        let seat = sighting.identity.instance.as_ref().and_then(|instance| seats.get(instance));
        match seat {
            Some(seat) => seat.primary != self.card,
            None => seats.values().any(|seat| seat.donors.contains(&self.card)),
        }
    }

    fn note(&mut self, sighting: &Sighting, now: MonoMillis, acts: &mut Vec<Act>) {
        let Identity { mark, instance, by, cgroup } = &sighting.identity;
        let action = match (instance, self.policy) {
            (None, _) => EscapeAction::Reported,
            (Some(_), EscapePolicy::Stop) => EscapeAction::Killed,
            (Some(_), EscapePolicy::Bill) => EscapeAction::Billed,
        };
        let escape = self.escapes.entry(*mark).or_insert_with(|| Escape {
            instance_id: instance.clone(),
            identified_by: *by,
            pid: mark.pid,
            cgroup: cgroup.clone(),
            start_ticks: Some(mark.start_ticks),
            bytes: Bytes::new(0),
            samples: 0,
            first_seen_mono_ms: now,
            last_seen_mono_ms: now,
            action,
        });
        escape.samples += 1;
        escape.last_seen_mono_ms = now;
        escape.bytes = escape.bytes.max(Bytes::new(sighting.bytes));
        if action == EscapeAction::Killed {
            acts.push(Act::Kill(*mark));
        }
        if escape.samples == SURVIVED_LOOKS && action == EscapeAction::Killed {
            escape.action = EscapeAction::Survived;
        }
        let again = match escape.action {
            EscapeAction::Survived => escape.samples == SURVIVED_LOOKS,
            EscapeAction::Billed => escape.samples.is_multiple_of(BILLED_LOOKS),
            EscapeAction::Killed | EscapeAction::Reported => false,
        };
        if escape.samples == 1 || again {
            acts.push(Act::Tell(Box::new(escape.clone())));
        }
    }

    /// Forgets who is gone; what was charged is told a last time, with its whole span.
    fn leave_behind(&mut self, seen: &[Sighting], acts: &mut Vec<Act>) {
        let here = |mark: &ProcessMark| seen.iter().any(|sighting| sighting.identity.mark == *mark);
        self.escapes.retain(|mark, escape| {
            let stays = here(mark);
            if !stays && escape.action == EscapeAction::Billed && escape.samples > 1 {
                acts.push(Act::Tell(Box::new(escape.clone())));
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_protocol::control::IdentifiedBy;
    use tarn_protocol::units::Timestamp;

    fn card(number: u8) -> GpuUuid {
        GpuUuid::from_bytes([number; 16])
    }

    fn instance(number: u128) -> InstanceId {
        InstanceId::new(Timestamp::from_micros(1), number)
    }

    /// Instance 1 on card 1 with donor 2, instance 3 on card 3 alone.
    fn seats() -> BTreeMap<InstanceId, Seat> {
        BTreeMap::from([
            (instance(1), Seat { primary: card(1), donors: vec![card(2)] }),
            (instance(3), Seat { primary: card(3), donors: vec![] }),
        ])
    }

    fn sighting(pid: u32, instance: Option<InstanceId>) -> Sighting {
        let mark = ProcessMark { pid, start_ticks: 7 };
        let by = if instance.is_some() { IdentifiedBy::Cgroup } else { IdentifiedBy::Nothing };
        Sighting { identity: Identity { mark, instance, by, cgroup: None }, bytes: 100 }
    }

    fn told(acts: &[Act]) -> Vec<(u32, EscapeAction, u32)> {
        let told = acts.iter().filter_map(|act| match act {
            Act::Tell(escape) => Some((escape.pid, escape.action, escape.samples)),
            Act::Kill(_) => None,
        });
        told.collect()
    }

    fn killed(acts: &[Act]) -> Vec<u32> {
        let killed = acts.iter().filter_map(|act| match act {
            Act::Kill(mark) => Some(mark.pid),
            Act::Tell(_) => None,
        });
        killed.collect()
    }

    fn check(on: u8, whose: Option<u128>, escaped: bool, ended: bool) {
        let mut sentry = Sentry::new(card(on), EscapePolicy::Stop);
        let acts = sentry.look(&[sighting(10, whose.map(instance))], &seats(), MonoMillis::new(5));
        assert_eq!(!told(&acts).is_empty(), escaped, "card {on}, process of {whose:?}");
        assert_eq!(!killed(&acts).is_empty(), ended, "card {on}, process of {whose:?}");
    }

    #[test]
    fn b10_a_tenants_process_belongs_on_its_primary_and_nowhere_else() {
        check(1, Some(1), false, false);
        check(2, Some(1), true, true);
        check(3, Some(1), true, true);
        check(2, Some(3), true, true);
        check(4, Some(3), true, true);
        // An instance without a journal.
        check(2, Some(9), true, true);
        check(1, Some(9), false, false);
        // Nobody's process: told where a pool has lent the card, ended nowhere.
        check(2, None, true, false);
        check(1, None, false, false);
        check(4, None, false, false);
    }

    #[test]
    fn b10_one_that_does_not_die_is_told_again_and_once() {
        let mut sentry = Sentry::new(card(2), EscapePolicy::Stop);
        let seen = [sighting(10, Some(instance(1)))];
        let mut all = Vec::new();
        for look in 0..20 {
            let acts = sentry.look(&seen, &seats(), MonoMillis::new(look * 500));
            assert_eq!(killed(&acts), [10], "it is killed until it is gone");
            all.extend(told(&acts));
        }
        assert_eq!(all, [(10, EscapeAction::Killed, 1), (10, EscapeAction::Survived, SURVIVED_LOOKS)]);
        // A successor under the same pid is another process.
        let mark = ProcessMark { pid: 10, start_ticks: 8 };
        let again = Identity { mark, ..seen[0].identity.clone() };
        let acts = sentry.look(&[Sighting { identity: again, bytes: 1 }], &seats(), MonoMillis::new(0));
        assert_eq!(told(&acts), [(10, EscapeAction::Killed, 1)]);
    }

    #[test]
    fn b10_what_is_charged_is_told_from_first_to_last_sight_and_lives() {
        let mut sentry = Sentry::new(card(2), EscapePolicy::Bill);
        let first = Sighting { bytes: 50, ..sighting(10, Some(instance(1))) };
        let second = Sighting { bytes: 500, ..first.clone() };
        assert_eq!(told(&sentry.look(&[first], &seats(), MonoMillis::new(1000))).len(), 1);
        assert!(sentry.look(&[second], &seats(), MonoMillis::new(1500)).is_empty());
        let acts = sentry.look(&[], &seats(), MonoMillis::new(2000));
        let [Act::Tell(escape)] = acts.as_slice() else { panic!("{acts:?}") };
        assert_eq!((escape.first_seen_mono_ms.get(), escape.last_seen_mono_ms.get()), (1000, 1500));
        assert_eq!((escape.bytes.get(), escape.samples), (500, 2));
        assert!(sentry.look(&[], &seats(), MonoMillis::new(2500)).is_empty());
    }
}
