//! What a tenant may ask of an instance, by state.

use super::{DesiredState, State, texts};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    Start,
    Stop,
    Restart,
    Suspend,
    Resume,
    Resize,
    Terminate,
}

texts!(Action {
    Start = "start",
    Stop = "stop",
    Restart = "restart",
    Suspend = "suspend",
    Resume = "resume",
    Resize = "resize",
    Terminate = "terminate",
});

/// The actions legal now, as the API lists them; anything else is a conflict.
pub const fn actions(state: State) -> &'static [Action] {
    match state {
        State::Requested | State::Scheduling | State::Provisioning | State::Starting => {
            &[Action::Stop, Action::Terminate]
        }
        State::Running | State::Degraded => {
            &[Action::Stop, Action::Restart, Action::Suspend, Action::Resize, Action::Terminate]
        }
        State::Stopping | State::Suspending => &[Action::Terminate],
        State::Stopped => &[Action::Start, Action::Resize, Action::Terminate],
        State::Suspended => &[Action::Resume, Action::Resize, Action::Terminate],
        State::Failed => &[Action::Start, Action::Terminate],
        State::Terminating | State::Terminated => &[],
    }
}

/// The answer to an action that is not legal now, with what is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an instance that is {state} cannot {action}")]
pub struct ActionRefused {
    pub state: State,
    pub action: Action,
    pub legal: &'static [Action],
}

impl Action {
    /// Whether the action is legal in `state`.
    pub fn check(self, state: State) -> Result<(), ActionRefused> {
        let legal = actions(state);
        if legal.contains(&self) { Ok(()) } else { Err(ActionRefused { state, action: self, legal }) }
    }

    /// The wish that the action amounts to; `None` for those that are more than a wish. A start leases cards first.
    pub const fn desired(self) -> Option<DesiredState> {
        match self {
            Self::Start | Self::Resume => Some(DesiredState::Running),
            Self::Stop => Some(DesiredState::Stopped),
            Self::Terminate => Some(DesiredState::Terminated),
            Self::Restart | Self::Suspend | Self::Resize => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::Event;

    #[test]
    fn what_is_not_legal_is_refused_with_what_is() {
        assert_eq!(Action::Stop.check(State::Running), Ok(()));
        let refused = Action::Start.check(State::Stopping).unwrap_err();
        assert_eq!(refused.legal, [Action::Terminate]);
        assert_eq!(refused.to_string(), "an instance that is stopping cannot start");
    }

    #[test]
    fn an_action_is_listed_exactly_where_its_transition_is_legal() {
        let event = |action| match action {
            Action::Start | Action::Resume => Some(Event::Start),
            Action::Stop | Action::Restart => Some(Event::Stop),
            Action::Suspend => Some(Event::Suspend),
            Action::Terminate => Some(Event::Terminate),
            Action::Resize => None,
        };
        for &state in State::ALL {
            for action in actions(state) {
                if let Some(event) = event(*action) {
                    assert!(state.after(event).is_ok(), "{state} lists {action}");
                }
            }
            let stops = actions(state).contains(&Action::Stop);
            assert_eq!(stops, state.after(Event::Stop).is_ok(), "{state} and stop");
            let terminates = actions(state).contains(&Action::Terminate);
            assert_eq!(terminates, state.after(Event::Terminate).is_ok(), "{state} and terminate");
        }
    }
}
