//! Named places at which a test makes the control plane die: around every write of money. Production arms none, and pays one
//! comparison with nothing.

use std::sync::Arc;

/// Every name that [`Failpoints::hit`] is called with; tests walk this list.
pub const ALL: &[&str] = &[
    "open.before_insert",
    "open.inserted",
    "evidence.stored",
    "report.before_commit",
    "report.committed",
    "settle.segment_saved",
    "settle.drawn",
    "settle.posted",
    "settle.before_commit",
    "settle.committed",
    "split.ended",
    "close.before_save",
    "close.saved",
    "fund.granted",
];

/// At most one name is armed.
#[derive(Debug, Clone, Default)]
pub struct Failpoints {
    armed: Option<Arc<str>>,
}

impl Failpoints {
    pub fn new(armed: Option<&str>) -> Self {
        Self { armed: armed.map(Arc::from) }
    }

    /// Dies here, as abruptly as by SIGKILL, when `name` is armed.
    pub fn hit(&self, name: &'static str) {
        if self.armed.as_deref() == Some(name) {
            std::process::abort();
        }
    }
}
