//! The one mapping between what is wanted, recorded and observed.
//!
//! [`next`] answers only with events that [`State::after`] accepts in that order, and with nothing once the three agree. It knows
//! no time, lease or host: what to do besides (publish, release, bill) is the reconciler's.

use super::{DesiredState, Event, Observed, ReasonCode, State};

/// The events that bring the record towards wish and observation, with the reason to record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    pub events: &'static [Event],
    /// `None`: the wish's own reason.
    pub reason: Option<ReasonCode>,
}

impl Next {
    pub const STAY: Self = Self::wished(&[]);

    const fn wished(events: &'static [Event]) -> Self {
        Self { events, reason: None }
    }

    const fn seen(events: &'static [Event], reason: ReasonCode) -> Self {
        Self { events, reason: Some(reason) }
    }

    pub const fn stays(self) -> bool {
        self.events.is_empty()
    }
}

pub const fn next(desired: DesiredState, state: State, observed: Observed) -> Next {
    use State as S;
    match (desired, state) {
        (_, S::Terminated) => Next::STAY,
        (_, S::Terminating) => match observed {
            Observed::Absent => Next::wished(&[Event::Gone]),
            _ => Next::STAY,
        },
        (DesiredState::Terminated, _) => Next::wished(&[Event::Terminate]),
        (_, S::Stopping) => ended(observed, &[Event::Stopped]),
        (_, S::Suspending) => ended(observed, &[Event::Suspended]),
        (
            DesiredState::Stopped,
            S::Requested | S::Scheduling | S::Provisioning | S::Starting | S::Running | S::Degraded,
        ) => Next::wished(&[Event::Stop]),
        // Ended instances start again only by a start of their own, which leases cards first.
        (_, S::Stopped | S::Suspended | S::Failed) => Next::STAY,
        (DesiredState::Running, S::Requested) => Next::wished(&[Event::Schedule, Event::Provision]),
        (DesiredState::Running, S::Scheduling) => Next::wished(&[Event::Provision]),
        (DesiredState::Running, S::Provisioning) => provisioning(observed),
        (DesiredState::Running, S::Starting) => starting(observed),
        (DesiredState::Running, S::Running) => running(observed),
        (DesiredState::Running, S::Degraded) => degraded(observed),
    }
}

const fn ended(observed: Observed, events: &'static [Event]) -> Next {
    if observed.quiet() { Next::wished(events) } else { Next::STAY }
}

const fn provisioning(observed: Observed) -> Next {
    match observed {
        // Absent: the host has the goal and has not begun.
        Observed::Unknown | Observed::Absent | Observed::Preparing | Observed::Stopping => Next::STAY,
        Observed::Launching => Next::wished(&[Event::Start]),
        Observed::Running { .. } => Next::wished(&[Event::Start, Event::Ready]),
        Observed::Degraded { reason, .. } => {
            Next::seen(&[Event::Start, Event::Ready, Event::Degrade], reason)
        }
        Observed::Stopped { reason } => Next::seen(&[Event::Stop, Event::Stopped], reason),
        Observed::Failed { reason } => failed_early(reason),
    }
}

const fn starting(observed: Observed) -> Next {
    match observed {
        Observed::Unknown
        | Observed::Absent
        | Observed::Preparing
        | Observed::Launching
        | Observed::Stopping => Next::STAY,
        Observed::Running { .. } => Next::wished(&[Event::Ready]),
        Observed::Degraded { reason, .. } => Next::seen(&[Event::Ready, Event::Degrade], reason),
        Observed::Stopped { reason } => Next::seen(&[Event::Stop, Event::Stopped], reason),
        Observed::Failed { reason } => failed_early(reason),
    }
}

/// Before the first ready evidence a set of cards may be at fault: another one is worth a try.
const fn failed_early(reason: ReasonCode) -> Next {
    if reason.blames_cards() {
        Next::seen(&[Event::Reschedule], reason)
    } else {
        Next::seen(&[Event::Fail], reason)
    }
}

const fn running(observed: Observed) -> Next {
    match observed {
        Observed::Unknown | Observed::Running { .. } | Observed::Stopping => Next::STAY,
        // The host starts it again by itself, after a reboot: it does not work meanwhile.
        Observed::Preparing | Observed::Launching => Next::seen(&[Event::Degrade], ReasonCode::HostLost),
        Observed::Degraded { reason, .. } => Next::seen(&[Event::Degrade], reason),
        Observed::Absent => Next::seen(&[Event::Fail], ReasonCode::HostLost),
        Observed::Stopped { reason } => Next::seen(&[Event::Stop, Event::Stopped], reason),
        Observed::Failed { reason } => Next::seen(&[Event::Fail], reason),
    }
}

const fn degraded(observed: Observed) -> Next {
    match observed {
        Observed::Running { .. } => Next::wished(&[Event::Recover]),
        Observed::Unknown
        | Observed::Preparing
        | Observed::Launching
        | Observed::Degraded { .. }
        | Observed::Stopping => Next::STAY,
        Observed::Absent => Next::seen(&[Event::Fail], ReasonCode::HostLost),
        Observed::Stopped { reason } => Next::seen(&[Event::Stop, Event::Stopped], reason),
        Observed::Failed { reason } => Next::seen(&[Event::Fail], reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tarn_protocol::units::MonoMillis;

    fn observations() -> Vec<Observed> {
        let ready_mono_ms = MonoMillis::new(5);
        let mut all = vec![
            Observed::Unknown,
            Observed::Absent,
            Observed::Preparing,
            Observed::Launching,
            Observed::Running { ready_mono_ms },
            Observed::Stopping,
        ];
        for &reason in ReasonCode::ALL {
            all.push(Observed::Degraded { ready_mono_ms, reason });
            all.push(Observed::Stopped { reason });
            all.push(Observed::Failed { reason });
        }
        all
    }

    #[test]
    fn every_answer_is_a_legal_path_and_repeating_it_settles() {
        for &desired in DesiredState::ALL {
            for &state in State::ALL {
                for observed in observations() {
                    let mut now = state;
                    let mut rounds = 0;
                    loop {
                        let step = next(desired, now, observed);
                        if step.stays() {
                            break;
                        }
                        for &event in step.events {
                            now = now.after(event).expect("only legal transitions");
                        }
                        // A rescheduled instance waits for new cards: the old observation says no more of it.
                        if step.events == [Event::Reschedule] {
                            break;
                        }
                        rounds += 1;
                        assert!(rounds <= 4, "{desired} {state} {observed:?} does not settle");
                    }
                }
            }
        }
    }

    #[test]
    fn no_contact_never_moves_a_workload() {
        for state in [State::Running, State::Degraded, State::Stopping, State::Suspending, State::Terminating]
        {
            assert!(next(DesiredState::Running, state, Observed::Unknown).stays(), "{state}");
        }
    }

    #[test]
    fn termination_ends_only_with_proof() {
        for observed in observations() {
            let ends = !next(DesiredState::Terminated, State::Terminating, observed).stays();
            assert_eq!(ends, observed == Observed::Absent, "{observed:?}");
        }
    }

    #[test]
    fn a_wish_to_terminate_reaches_terminating_from_every_state() {
        for &state in State::ALL {
            let step = next(DesiredState::Terminated, state, Observed::Unknown);
            let end = step.events.iter().try_fold(state, |now, &event| now.after(event)).expect("legal");
            assert!(matches!(end, State::Terminating | State::Terminated), "{state} ends {end}");
        }
    }
}
