//! Background work: each worker is a `tick(now)` that re-reads state, does a bounded amount, and says what it did.
//!
//! Replicas share work by one claimed row per worker. A claim has a fence that grows with every change of holder; each transaction of
//! a tick first proves its fence, so a replica that slept through its claim's end changes nothing, however late it writes. A tick is
//! woken by changes and by an interval alike: wake-ups give speed, the interval gives truth.

mod claim;
mod exhaust;
mod forget;
mod invoice;
mod reconcile;
mod run;
mod settle;
mod sweep;

pub use claim::{Claim, STALE_WRITE};
pub use run::{spawn_workers, tick, tick_all};

use std::time::Duration;

use tarn_store::StoreError;

use crate::app::act;
use crate::app::instances::claim::ClaimError;
use crate::app::invoices::issue::IssueError;
use crate::app::metering::purse::CorruptMoney;
use crate::app::metering::settle::SettleFailed;

/// The workers there are, in the order in which one round runs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Worker {
    Sweep,
    Reconcile,
    Settle,
    Exhaust,
    Forget,
    Invoice,
}

impl Worker {
    pub const ALL: [Self; 6] =
        [Self::Sweep, Self::Reconcile, Self::Settle, Self::Exhaust, Self::Forget, Self::Invoice];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Sweep => "sweep",
            Self::Reconcile => act::RECONCILE,
            Self::Settle => "settle",
            Self::Exhaust => act::EXHAUST,
            Self::Forget => "forget",
            Self::Invoice => "invoice",
        }
    }

    /// The longest time between two ticks.
    pub const fn interval(self) -> Duration {
        match self {
            Self::Reconcile => Duration::from_millis(500),
            Self::Exhaust => Duration::from_secs(1),
            Self::Sweep => Duration::from_secs(2),
            Self::Settle => Duration::from_secs(5),
            Self::Forget | Self::Invoice => Duration::from_mins(1),
        }
    }
}

/// What a tick did, for operators and tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Report {
    /// Things looked at.
    pub seen: u32,
    /// Things changed.
    pub changed: u32,
    /// Things that failed and are tried again at the next tick.
    pub failed: u32,
    /// The claim was lost meanwhile; nothing was written under it.
    pub fenced: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// Another replica holds the worker now.
    #[error("fence {fence} of worker {worker} is not current")]
    Fenced { worker: &'static str, fence: i64 },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Claim(#[from] ClaimError),
    #[error(transparent)]
    Money(#[from] CorruptMoney),
    #[error(transparent)]
    Settle(#[from] SettleFailed),
    #[error(transparent)]
    Invoice(#[from] IssueError),
}
