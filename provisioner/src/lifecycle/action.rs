//! What a tenant may ask of an instance, by state.

use super::{State, texts};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::Event;

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
