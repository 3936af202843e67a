//! Named places at which a test makes the agent die: before and after each journal write and each external action.

/// At most one name is armed; production arms none.
#[derive(Debug, Clone, Default)]
pub struct Failpoints {
    armed: Option<String>,
}

/// Every name that [`Failpoints::hit`] is called with on the way of an instance; tests walk this list.
pub const INSTANCE_LIFE: &[&str] = &[
    "wanted.before_journal",
    "wanted.after_journal",
    "prepare.before_directory",
    "prepare.after_directory",
    "prepare.after_journal",
    "broker.after_intent",
    "broker.after_spawn",
    "broker.after_journal",
    "launch.after_intent",
    "launch.after_spawn",
    "launch.after_journal",
    "launch.after_gate",
    "running.after_journal",
    "usage.before_append",
    "usage.after_append",
    "report.before_send",
    "report.after_send",
];

/// The same, on the way down.
pub const INSTANCE_END: &[&str] = &[
    "stop.after_intent",
    "stop.after_signal",
    "stop.after_kill",
    "finish.after_journal",
    "clean.before_broker_stop",
    "clean.after_broker_stop",
    "clean.after_scrub",
    "ended.after_journal",
    "remove.before_directory",
    "remove.after_directory",
    "remove.after_journal",
];

impl Failpoints {
    pub fn new(armed: Option<String>) -> Self {
        Self { armed }
    }

    /// Dies here, as abruptly as by SIGKILL, when `name` is armed.
    pub fn hit(&self, name: &str) {
        if self.armed.as_deref() == Some(name) {
            std::process::abort();
        }
    }
}
