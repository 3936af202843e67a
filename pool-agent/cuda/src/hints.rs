//! What a program, or whoever starts it, says of its memory: hints by thread, and defaults by environment.
//!
//! The environment changes how a pool is used, never what it is: totals, caps and donors come from the pool config alone. Read once:
//!
//! * `TARN_PLACEMENT`: `local_first`, `interleave` or `balanced` for large requests, in place of the pool's policy; or `hot` or `cold`
//!   for all.
//! * `TARN_RESERVE_MIB`: what large requests leave free on the primary.
//! * `TARN_LARGE_MIB`: from which size a request is large.
//! * `TARN_PAUSE_MS`: what counts as a pause in the growth of the process (see [`crate::growth`]).
//!
//! A value that is none of these is told in the log and changes nothing.

use std::cell::Cell;
use std::ffi::CStr;

use tarn_protocol::pool_config::Placement;

use crate::placement::{Rules, UNIT};

/// `enum tarn_placement`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Hint {
    #[default]
    Default,
    Hot,
    Cold,
    Interleave,
    Balanced,
}

thread_local! {
    static SCOPE: Cell<Hint> = const { Cell::new(Hint::Default) };
}

/// The calling thread's hint for what it allocates.
pub(crate) fn scope() -> Hint {
    // A thread on its way out has none any more.
    SCOPE.try_with(Cell::get).unwrap_or_default()
}

pub(crate) fn set_scope(hint: Hint) {
    let _ = SCOPE.try_with(|scope| scope.set(hint));
}

impl Hint {
    pub(crate) fn from_code(code: i32) -> Option<Self> {
        [Self::Default, Self::Hot, Self::Cold, Self::Interleave, Self::Balanced]
            .into_iter()
            .find(|hint| hint.code() == code)
    }

    pub(crate) const fn code(self) -> i32 {
        match self {
            Self::Default => 0,
            Self::Hot => 1,
            Self::Cold => 2,
            Self::Interleave => 3,
            Self::Balanced => 4,
        }
    }
}

impl Rules {
    /// These rules for a request with a hint.
    pub(crate) fn hinted(self, hint: Hint) -> Self {
        match hint {
            Hint::Default => self,
            // No request is large: the reserve is there for them.
            Hint::Hot => {
                Self { placement: Placement::LocalFirst, large_bytes: u64::MAX, watched: false, ..self }
            }
            // Everything is large, and all of the primary is reserve.
            Hint::Cold => Self {
                placement: Placement::LocalFirst,
                large_bytes: UNIT,
                reserve_bytes: u64::MAX,
                watched: false,
                ..self
            },
            Hint::Interleave => {
                Self { placement: Placement::Interleave, large_bytes: UNIT, watched: false, ..self }
            }
            Hint::Balanced => {
                Self { placement: Placement::Balanced, large_bytes: UNIT, watched: false, ..self }
            }
        }
    }

    /// These rules as the environment changes them. `variable` looks one up, `complain` hears of what means nothing.
    pub(crate) fn adjusted(
        self,
        variable: impl Fn(&CStr) -> Option<String>,
        complain: impl Fn(&str),
    ) -> Self {
        let mut rules = self;
        let number = |name: &CStr, unit: u64, what: &str| {
            let text = variable(name)?;
            let given = text.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
            if given.is_none() {
                complain(&format!("cuda: {name:?}={text:?} is not a number of {what}"));
            }
            given
        };
        rules.reserve_bytes = number(c"TARN_RESERVE_MIB", 1 << 20, "MiB").unwrap_or(rules.reserve_bytes);
        rules.large_bytes = number(c"TARN_LARGE_MIB", 1 << 20, "MiB").unwrap_or(rules.large_bytes);
        rules.pause_ms = number(c"TARN_PAUSE_MS", 1, "milliseconds").or(rules.pause_ms);
        match variable(c"TARN_PLACEMENT").as_deref().map(str::trim) {
            None | Some("") => {}
            Some("local_first") => rules.placement = Placement::LocalFirst,
            Some("interleave") => rules.placement = Placement::Interleave,
            Some("balanced") => rules.placement = Placement::Balanced,
            Some("hot") => rules = rules.hinted(Hint::Hot),
            Some("cold") => rules = rules.hinted(Hint::Cold),
            Some(other) => complain(&format!("cuda: TARN_PLACEMENT={other:?} is no placement")),
        }
        rules
    }
}

/// A variable of this process's environment.
pub(crate) fn variable(name: &CStr) -> Option<String> {
    // SAFETY: a NUL-terminated name; the value is copied at once. A program that changes its environment in another thread meanwhile
    // races with the driver's own look at it as well.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_string_lossy().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        placement: Placement::LocalFirst,
        reserve_bytes: 4 * UNIT,
        large_bytes: 8 * UNIT,
        granule_bytes: UNIT,
        watched: true,
        pause_ms: None,
    };

    #[test]
    fn codes_are_the_headers() {
        let header = include_str!("../include/tarn.h");
        for (name, hint) in [
            ("TARN_DEFAULT", Hint::Default),
            ("TARN_HOT", Hint::Hot),
            ("TARN_COLD", Hint::Cold),
            ("TARN_INTERLEAVE", Hint::Interleave),
            ("TARN_BALANCED", Hint::Balanced),
        ] {
            let code = hint.code();
            let line = header.lines().find(|line| line.trim().starts_with(&format!("{name} = "))).unwrap();
            assert!(line.contains(&format!("= {code}")), "{line}");
            assert_eq!(Hint::from_code(code), Some(hint));
        }
        assert_eq!(Hint::from_code(5), None);
    }

    fn check(variables: &[(&CStr, &str)], expected: Rules, wrong: u32) {
        let look = |name: &CStr| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let complaints = Cell::new(0);
        let adjusted = RULES.adjusted(look, |_| complaints.set(complaints.get() + 1));
        assert_eq!((adjusted, complaints.get()), (expected, wrong), "{variables:?}");
    }

    #[test]
    fn the_environment_adjusts_and_never_breaks_the_rules() {
        check(&[], RULES, 0);
        check(&[(c"TARN_PLACEMENT", "balanced")], Rules { placement: Placement::Balanced, ..RULES }, 0);
        check(&[(c"TARN_PLACEMENT", "cold")], RULES.hinted(Hint::Cold), 0);
        let given = Rules { reserve_bytes: 4096 << 20, large_bytes: 128 << 20, ..RULES };
        check(&[(c"TARN_RESERVE_MIB", "4096"), (c"TARN_LARGE_MIB", " 128 ")], given, 0);
        check(&[(c"TARN_PLACEMENT", "everywhere"), (c"TARN_LARGE_MIB", "-1")], RULES, 2);
        check(&[(c"TARN_RESERVE_MIB", "99999999999999999999")], RULES, 1);
        check(&[(c"TARN_PAUSE_MS", "250")], Rules { pause_ms: Some(250), ..RULES }, 0);
        check(&[(c"TARN_PAUSE_MS", "soon")], RULES, 1);
    }
}
