//! The recorded state, its legal transitions and the named sets of states.

use super::texts;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    Requested,
    /// Looking for cards: at first, or again after a set failed its proof.
    Scheduling,
    /// Cards are leased; the host pulls, caches and proves the pool.
    Provisioning,
    Starting,
    Running,
    /// Works, with trouble of ours that the tenant is told of.
    Degraded,
    Stopping,
    Stopped,
    Suspending,
    Suspended,
    /// Readable with its reason; may be started again.
    Failed,
    /// Billing has ended; waits for the host's proof that nothing is left.
    Terminating,
    Terminated,
}

texts!(State {
    Requested = "requested",
    Scheduling = "scheduling",
    Provisioning = "provisioning",
    Starting = "starting",
    Running = "running",
    Degraded = "degraded",
    Stopping = "stopping",
    Stopped = "stopped",
    Suspending = "suspending",
    Suspended = "suspended",
    Failed = "failed",
    Terminating = "terminating",
    Terminated = "terminated",
});

/// The card is charged. `degraded` is not among them: the agent reports it only for trouble of ours.
pub const BILLABLE: &[State] = &[State::Running];
/// A lease may exist: the cards are the instance's own until its host proves that nothing runs there. `failed` belongs here
/// for as long as that proof is missing.
pub const HOLDS_GPUS: &[State] = &[
    State::Requested,
    State::Scheduling,
    State::Provisioning,
    State::Starting,
    State::Running,
    State::Degraded,
    State::Stopping,
    State::Suspending,
    State::Failed,
    State::Terminating,
];
/// Nothing follows.
pub const TERMINAL: &[State] = &[State::Terminated];
/// Something runs, is on its way to run, or is being stopped: can fail.
pub const LIVE: &[State] = &[
    State::Requested,
    State::Scheduling,
    State::Provisioning,
    State::Starting,
    State::Running,
    State::Degraded,
    State::Stopping,
    State::Suspending,
];

/// What moves a state on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// The request was taken up.
    Schedule,
    /// Cards are leased.
    Provision,
    /// The host launches the tenant's command, or an ended instance is to run again.
    Start,
    /// First ready evidence.
    Ready,
    Degrade,
    Recover,
    Stop,
    Stopped,
    Suspend,
    Suspended,
    /// This set of cards failed its proof: try the next.
    Reschedule,
    Fail,
    Terminate,
    /// The host proved that nothing is left.
    Gone,
}

texts!(Event {
    Schedule = "schedule",
    Provision = "provision",
    Start = "start",
    Ready = "ready",
    Degrade = "degrade",
    Recover = "recover",
    Stop = "stop",
    Stopped = "stopped",
    Suspend = "suspend",
    Suspended = "suspended",
    Reschedule = "reschedule",
    Fail = "fail",
    Terminate = "terminate",
    Gone = "gone",
});

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an instance that is {state} cannot {event}")]
pub struct IllegalTransition {
    pub state: State,
    pub event: Event,
}

impl State {
    /// The state after `event`: the whole table of legal transitions.
    pub const fn after(self, event: Event) -> Result<Self, IllegalTransition> {
        use State as S;
        let next = match (self, event) {
            (S::Requested, Event::Schedule) | (S::Provisioning | S::Starting, Event::Reschedule) => {
                S::Scheduling
            }
            (S::Scheduling, Event::Provision) => S::Provisioning,
            (S::Provisioning | S::Stopped | S::Suspended | S::Failed, Event::Start) => S::Starting,
            (S::Starting, Event::Ready) | (S::Degraded, Event::Recover) => S::Running,
            (S::Running, Event::Degrade) => S::Degraded,
            (
                S::Requested | S::Scheduling | S::Provisioning | S::Starting | S::Running | S::Degraded,
                Event::Stop,
            ) => S::Stopping,
            (S::Stopping, Event::Stopped) => S::Stopped,
            (S::Running | S::Degraded, Event::Suspend) => S::Suspending,
            (S::Suspending, Event::Suspended) => S::Suspended,
            (
                S::Requested
                | S::Scheduling
                | S::Provisioning
                | S::Starting
                | S::Running
                | S::Degraded
                | S::Stopping
                | S::Suspending,
                Event::Fail,
            ) => S::Failed,
            (
                S::Requested
                | S::Scheduling
                | S::Provisioning
                | S::Starting
                | S::Running
                | S::Degraded
                | S::Stopping
                | S::Stopped
                | S::Suspending
                | S::Suspended
                | S::Failed,
                Event::Terminate,
            ) => S::Terminating,
            (S::Terminating, Event::Gone) => S::Terminated,
            _ => return Err(IllegalTransition { state: self, event }),
        };
        Ok(next)
    }

    pub fn billable(self) -> bool {
        BILLABLE.contains(&self)
    }

    pub fn holds_gpus(self) -> bool {
        HOLDS_GPUS.contains(&self)
    }

    pub fn terminal(self) -> bool {
        TERMINAL.contains(&self)
    }

    pub fn live(self) -> bool {
        LIVE.contains(&self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row per state: the events it accepts and where they lead. Everything absent is illegal.
    const TABLE: &[(State, &[(Event, State)])] = {
        use Event as E;
        use State as S;
        &[
            (
                S::Requested,
                &[
                    (E::Schedule, S::Scheduling),
                    (E::Stop, S::Stopping),
                    (E::Fail, S::Failed),
                    (E::Terminate, S::Terminating),
                ],
            ),
            (
                S::Scheduling,
                &[
                    (E::Provision, S::Provisioning),
                    (E::Stop, S::Stopping),
                    (E::Fail, S::Failed),
                    (E::Terminate, S::Terminating),
                ],
            ),
            (
                S::Provisioning,
                &[
                    (E::Start, S::Starting),
                    (E::Reschedule, S::Scheduling),
                    (E::Stop, S::Stopping),
                    (E::Fail, S::Failed),
                    (E::Terminate, S::Terminating),
                ],
            ),
            (
                S::Starting,
                &[
                    (E::Ready, S::Running),
                    (E::Reschedule, S::Scheduling),
                    (E::Stop, S::Stopping),
                    (E::Fail, S::Failed),
                    (E::Terminate, S::Terminating),
                ],
            ),
            (
                S::Running,
                &[
                    (E::Degrade, S::Degraded),
                    (E::Stop, S::Stopping),
                    (E::Suspend, S::Suspending),
                    (E::Fail, S::Failed),
                    (E::Terminate, S::Terminating),
                ],
            ),
            (
                S::Degraded,
                &[
                    (E::Recover, S::Running),
                    (E::Stop, S::Stopping),
                    (E::Suspend, S::Suspending),
                    (E::Fail, S::Failed),
                    (E::Terminate, S::Terminating),
                ],
            ),
            (S::Stopping, &[(E::Stopped, S::Stopped), (E::Fail, S::Failed), (E::Terminate, S::Terminating)]),
            (S::Stopped, &[(E::Start, S::Starting), (E::Terminate, S::Terminating)]),
            (
                S::Suspending,
                &[(E::Suspended, S::Suspended), (E::Fail, S::Failed), (E::Terminate, S::Terminating)],
            ),
            (S::Suspended, &[(E::Start, S::Starting), (E::Terminate, S::Terminating)]),
            (S::Failed, &[(E::Start, S::Starting), (E::Terminate, S::Terminating)]),
            (S::Terminating, &[(E::Gone, S::Terminated)]),
            (S::Terminated, &[]),
        ]
    };

    #[test]
    fn every_state_and_event_leads_where_the_table_says_or_is_illegal() {
        assert_eq!(TABLE.len(), State::ALL.len());
        for &(state, legal) in TABLE {
            for &event in Event::ALL {
                let wanted = legal.iter().find(|(known, _)| *known == event).map(|(_, next)| *next);
                assert_eq!(
                    state.after(event),
                    wanted.ok_or(IllegalTransition { state, event }),
                    "{state} {event}"
                );
            }
        }
    }

    #[test]
    fn the_named_sets_agree_with_the_transitions() {
        for &state in State::ALL {
            assert_eq!(state.live(), state.after(Event::Fail).is_ok(), "{state}: live states can fail");
            assert_eq!(
                state.terminal(),
                Event::ALL.iter().all(|&event| state.after(event).is_err()),
                "{state}: terminal states accept nothing"
            );
            assert!(!state.billable() || state.holds_gpus(), "{state}: what is charged is held");
        }
    }
}
