//! Background work: each worker is a `tick(now)` that re-reads state, does a bounded amount, and says what it did.
//!
//! Replicas share work by one claimed row per worker. A claim has a fence that grows with every change of holder; each transaction of
//! a tick first proves its fence, so a replica that slept through its claim's end changes nothing, however late it writes. A tick is
//! woken by changes and by an interval alike: wake-ups give speed, the interval gives truth.

mod claim;
mod collect;
mod exhaust;
mod forget;
mod invoice;
mod promise;
mod reconcile;
mod remind;
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
use crate::app::money::payments::PaymentFailed;
use crate::app::money::refunds::RefundFailed;
use crate::app::money::sla::SlaFailed;

/// The workers there are, in the order in which one round runs them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Worker {
    Sweep,
    Reconcile,
    Settle,
    Exhaust,
    Collect,
    Promise,
    Remind,
    Forget,
    Invoice,
}

impl Worker {
    pub const ALL: [Self; 9] = [
        Self::Sweep,
        Self::Reconcile,
        Self::Settle,
        Self::Exhaust,
        Self::Collect,
        Self::Promise,
        Self::Remind,
        Self::Forget,
        Self::Invoice,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Sweep => "sweep",
            Self::Reconcile => act::RECONCILE,
            Self::Settle => "settle",
            Self::Exhaust => act::EXHAUST,
            Self::Collect => act::COLLECT,
            Self::Promise => "promise",
            Self::Remind => "remind",
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
            Self::Settle | Self::Collect => Duration::from_secs(5),
            Self::Promise => Duration::from_secs(30),
            Self::Remind => Duration::from_mins(10),
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
    Payment(Box<PaymentFailed>),
    #[error(transparent)]
    Promise(Box<SlaFailed>),
    #[error(transparent)]
    Refund(Box<RefundFailed>),
    #[error(transparent)]
    Invoice(#[from] IssueError),
}

impl From<PaymentFailed> for WorkError {
    fn from(error: PaymentFailed) -> Self {
        match error {
            PaymentFailed::Store(error) => error.into(),
            error => Self::Payment(Box::new(error)),
        }
    }
}

impl From<SlaFailed> for WorkError {
    fn from(error: SlaFailed) -> Self {
        match error {
            SlaFailed::Store(error) => error.into(),
            error => Self::Promise(Box::new(error)),
        }
    }
}
