//! Running a script so that its failure can be told: caught, shrunk, and written down as the command that replays it.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use crate::script::Script;
use crate::verdict::Summary;
use crate::world::World;

/// Runs of a script that shrinking usually may take.
pub const TRIES_MAX: usize = 400;

/// What does not hold, and the happenings that show it.
#[derive(Debug)]
pub struct Failure {
    seed: u64,
    kept: Vec<usize>,
    message: String,
    happenings: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept: Vec<String> = self.kept.iter().map(usize::to_string).collect();
        writeln!(f, "seed {} fails: {}", self.seed, self.message)?;
        for happening in &self.happenings {
            writeln!(f, "  {happening}")?;
        }
        write!(f, "replay: SEED={} KEEP={} cargo test -p tarn-simulation replay", self.seed, kept.join(","))
    }
}

impl std::error::Error for Failure {}

/// Runs a script; `kept` are its happenings' numbers in the whole script of its seed. A failure is shrunk by at most `tries_max` runs.
pub fn try_script(
    script: &Script,
    kept: Option<&[usize]>,
    tries_max: usize,
) -> Result<Summary, Box<Failure>> {
    let all: Vec<usize> = (0..script.happenings.len()).collect();
    let mut kept = kept.map_or(all, <[usize]>::to_vec);
    let mut message = match outcome(&script.keep(&kept)) {
        Ok(summary) => return Ok(summary),
        Err(message) => message,
    };
    let mut tries = 0;
    let mut chunk = kept.len().div_ceil(2);
    while chunk > 0 {
        let mut from = 0;
        while from < kept.len() && tries < tries_max {
            tries += 1;
            let fewer: Vec<usize> = kept
                .iter()
                .enumerate()
                .filter(|(place, _)| !(from..from + chunk).contains(place))
                .map(|(_, number)| *number)
                .collect();
            match outcome(&script.keep(&fewer)) {
                Err(other) => (kept, message) = (fewer, other),
                Ok(_) => from += chunk,
            }
        }
        chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
    }
    let happenings = script.keep(&kept).happenings.iter().map(|happening| format!("{happening:?}")).collect();
    Err(Box::new(Failure { seed: script.setup.seed, kept, message, happenings }))
}

thread_local! {
    static RUNS_A_WORLD: Cell<bool> = const { Cell::new(false) };
}

/// What a failing world says is kept and not printed: the shrunk one is told.
fn outcome(script: &Script) -> Result<Summary, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !RUNS_A_WORLD.get() {
                usual(panic);
            }
        }));
    });
    RUNS_A_WORLD.set(true);
    let run = catch_unwind(AssertUnwindSafe(|| World::new(script.clone()).run()));
    RUNS_A_WORLD.set(false);
    run.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
    })
}
