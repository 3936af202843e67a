//! The life of an instance: what its owner wants, what is recorded, what the host observed.
//!
//! Three enums, three owners: the API owns [`DesiredState`], accepted reports alone move [`State`] along, the agent owns what becomes
//! [`Observed`]. [`next`] is the one exhaustive mapping between them; [`State::after`] is the one table of legal transitions.
//!
//! ```text
//! requested → scheduling → provisioning → starting → running → stopping → stopped → starting
//!                  ↑______________|___________|      running ⇄ degraded
//! running → suspending → suspended → starting        any live → failed → starting
//!                                                    any → terminating → terminated
//! ```
//! The arrow back to `scheduling` is a set that failed its proof before it was ever ready: the next set is tried.
//! `unreachable` is a flag of the host and no state at all.

mod action;
mod desired;
mod mapping;
mod observed;
mod reason;
mod state;

pub use action::{Action, ActionRefused, actions};
pub use desired::{DesiredState, Wish};
pub use mapping::{Next, next};
pub use observed::Observed;
pub use reason::{Fault, ReasonCode};
pub use state::{BILLABLE, Event, HOLDS_GPUS, IllegalTransition, LIVE, State, TERMINAL};

/// A text that names no value of an enum.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {kind}")]
pub struct UnknownText {
    pub kind: &'static str,
    pub text: String,
}

/// Gives an enum its stable text: `as_str`, `Display`, `FromStr`, serde and `ALL`, from one list.
macro_rules! texts {
    ($name:ident { $($variant:ident = $text:literal,)* }) => {
        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// As stored in the database and shown by the API; never changes.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = crate::lifecycle::UnknownText;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(crate::lifecycle::UnknownText { kind: stringify!($name), text: text.to_owned() }),
                }
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use texts;

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trips<T>(all: &[T])
    where
        T: Copy + PartialEq + std::fmt::Debug + std::fmt::Display + std::str::FromStr<Err = UnknownText>,
    {
        for value in all {
            assert_eq!(value.to_string().parse::<T>().as_ref(), Ok(value));
        }
        assert!("".parse::<T>().is_err() && "Running".parse::<T>().is_err());
    }

    #[test]
    fn every_text_round_trips_and_nothing_else_parses() {
        round_trips(State::ALL);
        round_trips(DesiredState::ALL);
        round_trips(ReasonCode::ALL);
        round_trips(Action::ALL);
        round_trips(Event::ALL);
    }
}
